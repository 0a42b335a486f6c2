"""Commands in the guest, through the QEMU guest agent (exec).

The agent knows whole answers only, so a command is not interactive: its standard input is collected until its
end and sent with the start (at most `STDIN_LIMIT_BYTES`), its output comes when it has ended. The agent cuts each
output at 16 MiB; libvirt carries about 3 MB of both together (10 MiB when its driver is embedded), and more than
that is an error in words. There is no terminal: that is what `attach` is for. A command that nobody waits for any more is killed.

A machine that started a short while ago may still boot: then the agent is waited for. Whether a command has ended
is told by no event; it is asked for, less and less often.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import Any

import libvirt

from kubeletx.api import (
    Channel,
    Conflict,
    ExecResult,
    Host,
    Internal,
    KubeletxError,
    StreamRequest,
    TimedOut,
    Unavailable,
    UnitId,
    UnitState,
    Unsupported,
)

from .client import Connection
from .errors import code_of, translate
from .looks import Looks, now_ns

STDIN_LIMIT_BYTES = 2 << 20
"""As base64 it must fit into one string of libvirt's protocol, which is 4 MiB at most."""
OUTPUT_LIMIT_BYTES = 3 << 20
"""The same, for both outputs together; only named in messages: libvirt draws the line."""
BOOT_SECONDS = 60.0
"""For so long after its start a machine without an answering agent counts as booting."""
CANNOT_RUN = 127
"""Exit code of a command that the guest could not start, as of a shell."""
_ANSWER_SECONDS = 5
_CONCURRENT_CALLS = 2
"""A guest that hangs holds a thread until the time-out; others must find one."""
_FIRST_PAUSE_SECONDS = 0.05
_LAST_PAUSE_SECONDS = 1.0
_ASK_AGAIN_SECONDS = 2.0
_KILL_SECONDS = 5.0
_ABANDONED_EXIT_CODE = 137
_CHUNK = 64 * 1024
_SILENT = {
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
    libvirt.VIR_ERR_AGENT_UNSYNCED,
    libvirt.VIR_ERR_OPERATION_TIMEOUT,
}


class AgentSilent(Unavailable):
    """No agent answers in the guest: not yet, not any more, or never."""


class CannotRun(Internal):
    """The guest could not start the command."""


class GuestAgent:
    """`SupportsExec` of one runtime."""

    def __init__(self, connection: Connection, looks: Looks, host: Host) -> None:
        self._connection = connection
        self._looks = looks
        self._host = host
        self._slots = asyncio.Semaphore(_CONCURRENT_CALLS)

    async def exec_sync(self, unit_id: UnitId, command: Sequence[str], timeout_seconds: float) -> ExecResult:
        """Run to the end. TimedOut covers the wait for a guest that boots, and an agent that never answers."""
        wait_seconds = await self._boot_seconds(unit_id)
        if timeout_seconds > 0:
            wait_seconds = timeout_seconds
        silences: list[AgentSilent] = []
        try:
            async with asyncio.timeout(timeout_seconds or None):
                return await self.run(unit_id, command, b"", wait_seconds, silences)
        except (TimeoutError, AgentSilent) as error:
            if timeout_seconds <= 0:
                raise
            words = f": {silences[-1]}" if silences else ""
            raise TimedOut(f"the command did not end within {timeout_seconds:g} s{words}") from error

    async def exec(self, unit_id: UnitId, request: StreamRequest) -> AgentSession:
        """A session that runs the command once its input is complete."""
        if request.tty:
            raise Unsupported(
                "commands in a machine have no terminal: leave -t out, or attach to the console"
            )
        wait_seconds = await self._boot_seconds(unit_id)
        try:
            await self._ask(unit_id, "guest-ping", {}, 1)
        except AgentSilent:
            if wait_seconds <= 0:
                raise
        return AgentSession(self, unit_id, request, wait_seconds)

    async def run(
        self,
        unit_id: UnitId,
        command: Sequence[str],
        stdin: bytes,
        wait_seconds: float,
        silences: list[AgentSilent] | None = None,
    ) -> ExecResult:
        """Run to the end. `wait_seconds`: how long an agent that does not answer yet is waited for.

        Raises AgentSilent; those that were waited out are added to `silences`. Killed in the guest when this is cancelled.
        """
        arguments: dict[str, Any] = {"path": command[0], "arg": list(command[1:]), "capture-output": True}
        if stdin:
            arguments["input-data"] = base64.b64encode(stdin).decode()
        try:
            answer = await self._start(unit_id, arguments, wait_seconds, [] if silences is None else silences)
        except CannotRun as error:
            return ExecResult(stdout=b"", stderr=f"{error}\n".encode(), exit_code=CANNOT_RUN)
        process = answer["pid"]
        ended = False
        try:
            pause = _FIRST_PAUSE_SECONDS
            while True:
                status = await self._ask(unit_id, "guest-exec-status", {"pid": process})
                if status.get("exited"):
                    ended = True
                    return result_of(status)
                await self._host.clock.sleep(pause)
                pause = min(pause * 1.5, _LAST_PAUSE_SECONDS)
        finally:
            if not ended:
                await self._kill(unit_id, process)

    async def _start(
        self,
        unit_id: UnitId,
        arguments: dict[str, Any],
        wait_seconds: float,
        silences: list[AgentSilent],
    ) -> dict[str, Any]:
        queue = self._connection.subscribe()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        try:
            while True:
                try:
                    answer: dict[str, Any] = await self._ask(unit_id, "guest-exec", arguments)
                    return answer
                except AgentSilent as error:
                    silences.append(error)
                    left = deadline - loop.time()
                    if left <= 0:
                        raise
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _ASK_AGAIN_SECONDS)):
                        await _news_of(queue, unit_id)
        finally:
            self._connection.unsubscribe(queue)

    async def _kill(self, unit_id: UnitId, process: int) -> None:
        """Best effort: on Linux the agent's number is the process's own. The status call lets the agent forget it."""
        arguments = {"path": "kill", "arg": ["-9", str(process)]}
        with contextlib.suppress(KubeletxError, TimeoutError):
            async with asyncio.timeout(_KILL_SECONDS):
                await self._ask(unit_id, "guest-exec", arguments)
                await self._ask(unit_id, "guest-exec-status", {"pid": process})

    async def _ask(
        self, unit_id: UnitId, command: str, arguments: dict[str, Any], seconds: int = _ANSWER_SECONDS
    ) -> Any:
        text = json.dumps({"execute": command, "arguments": arguments} if arguments else {"execute": command})
        async with self._slots:
            return await self._connection.use(_command, unit_id, text, seconds)

    async def _boot_seconds(self, unit_id: UnitId) -> float:
        """For how long the agent may still be on its way. Conflict for a machine that does not run."""
        found = await self._looks.get(unit_id)
        state = self._looks.state(unit_id, found)
        if state is not UnitState.RUNNING:
            name = f"{found.identity.namespace}/{found.identity.pod}"
            raise Conflict(f"machine {name} is {state.value}, not running: no command can run in it")
        status = await self._looks.status(unit_id)
        age_seconds = (now_ns(self._host) - status.started_at_ns) / 1e9
        return max(0.0, BOOT_SECONDS - age_seconds)


class AgentSession:
    """A command in a guest. Implements `kubeletx.api.Session`."""

    def __init__(
        self, agent: GuestAgent, unit_id: UnitId, request: StreamRequest, wait_seconds: float
    ) -> None:
        self._agent = agent
        self._unit_id = unit_id
        self._request = request
        self._wait_seconds = wait_seconds
        self._stdin = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._parts: asyncio.Queue[tuple[Channel, bytes] | None] = asyncio.Queue()
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not request.stdin:
            self._begin()

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """All of it, once the command has ended."""
        while (part := await self._parts.get()) is not None:
            yield part
        self._parts.put_nowait(None)

    async def write(self, data: bytes) -> None:
        """Collect input."""
        if self._task is not None or self._exit.done():
            return
        self._stdin += data
        if len(self._stdin) > STDIN_LIMIT_BYTES:
            self._fail(
                f"the input of a command in a machine is limited to {STDIN_LIMIT_BYTES >> 20} MiB; bring larger "
                "data in over the network or with a volume"
            )

    async def close_stdin(self) -> None:
        """The input is complete: the command starts."""
        self._begin()

    async def resize(self, width: int, height: int) -> None:
        """There is no terminal."""

    async def wait(self) -> int:
        """The command's exit code; 128 + signal when a signal ended it."""
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        """Abandon: a command that still runs is killed."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._finish(_ABANDONED_EXIT_CODE)

    def _begin(self) -> None:
        if self._task is None and not self._exit.done():
            self._task = asyncio.create_task(self._run(), name=f"guest-exec-{self._unit_id}")

    async def _run(self) -> None:
        try:
            stdin = bytes(self._stdin)
            self._stdin.clear()
            result = await self._agent.run(self._unit_id, self._request.command, stdin, self._wait_seconds)
        except KubeletxError as error:
            self._fail(error.message)
            return
        if self._request.stdout:
            self._send(Channel.STDOUT, result.stdout)
        if self._request.stderr:
            self._send(Channel.STDERR, result.stderr)
        self._finish(result.exit_code)

    def _send(self, channel: Channel, data: bytes) -> None:
        for at in range(0, len(data), _CHUNK):
            self._parts.put_nowait((channel, data[at : at + _CHUNK]))

    def _fail(self, words: str) -> None:
        self._send(Channel.STDERR, f"kubeletx: {words}\n".encode())
        self._finish(CANNOT_RUN - 1)

    def _finish(self, exit_code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(exit_code)
            self._parts.put_nowait(None)


def result_of(status: dict[str, Any]) -> ExecResult:
    """The answer of guest-exec-status for a command that ended. Pure."""
    stdout, stderr = (base64.b64decode(status.get(name, "")) for name in ("out-data", "err-data"))
    if status.get("out-truncated") or status.get("err-truncated"):
        stderr += b"\nkubeletx: the guest agent cut the output\n"
    # Windows guests may report neither.
    signal = status.get("signal")
    exit_code = status.get("exitcode", 0 if signal is None else 128 + signal)
    return ExecResult(stdout=stdout, stderr=stderr, exit_code=exit_code)


def agent_error(code: int, text: str) -> KubeletxError | None:
    """What an error of libvirt means when a guest agent was asked; None: what it means otherwise. Pure."""
    if code in _SILENT:
        return AgentSilent(
            f"no guest agent answers in the machine ({text}); commands and exec probes need the package "
            "qemu-guest-agent running in the guest; 'kubeletx attach' reaches its console without it"
        )
    if "has been disabled" in text or "has not been found" in text:
        return Unsupported(
            f"the guest agent in the machine refuses commands ({text}); allow guest-exec in its settings"
        )
    if "Failed to execute child process" in text or "Failed to create child process" in text:
        return CannotRun(text.rpartition("guest-exec': ")[2])
    if code == libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED:
        return Unsupported("the machine was made without a channel for the guest agent")
    if code == libvirt.VIR_ERR_RPC or "exceeds maximum" in text:
        return Conflict(
            f"the command ended, but its output is lost: libvirt carries about {OUTPUT_LIMIT_BYTES >> 20} MiB ({text})"
        )
    return None


async def _news_of(queue: asyncio.Queue[Any], unit_id: UnitId) -> None:
    """Return when something was heard of the machine's agent, or nothing will be heard any more."""
    while (event := await queue.get()) is not None:
        if event.uuid == unit_id and event.kind in ("agent", "lifecycle"):
            return


# --- on the host's threads ---


def _command(handle: libvirt.virConnect, uuid: str, text: str, seconds: int) -> Any:
    import libvirt_qemu

    domain = handle.lookupByUUIDString(uuid)
    try:
        answer = libvirt_qemu.qemuAgentCommand(domain, text, math.ceil(seconds), 0)
    except libvirt.libvirtError as error:
        raise agent_error(code_of(error), error.get_error_message() or "") or translate(error) from error
    return json.loads(answer)["return"]
