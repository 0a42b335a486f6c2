"""Client of the QEMU guest agent: single requests, and the wait for an agent that answers.

In this package, "the agent" is the guest agent. It answers with whole messages and sends no events. libvirt transfers
only about 3 MB of a process's outputs together, and after an answer above 10 MiB it ignores the agent until the agent
restarts. So the commands of users write to files in the guest (see `commands`).

A machine that started recently may still be booting; the client then waits for the agent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import math
import re
from typing import Any
from weakref import WeakValueDictionary

import libvirt
import msgspec

from kubeletx.api import (
    Conflict,
    ExecResult,
    Host,
    Internal,
    KubeletxError,
    Unavailable,
    UnitId,
    UnitState,
    Unsupported,
)
from kubeletx_libvirt.client import GUEST_CALLS, Connection
from kubeletx_libvirt.domain_reader import DomainReader, get_on, now_ns
from kubeletx_libvirt.errors import code_of, translate

INPUT_BYTES = 96 << 10
"""Maximum number of input bytes in one message.

libvirt 9 corrupts messages that do not fit into its socket's buffer at once (about 200 KiB): the part already
sent is sent again (qemuAgentIOWrite calls safewrite on a non-blocking socket).
"""
OUTPUT_LIMIT_BYTES = 3 << 20
"""Limit for stdout and stderr together in one message: libvirt's protocol enforces 4 MiB of base64."""
BOOT_SECONDS = 60.0
"""Seconds after its start during which a machine whose agent does not answer is assumed to be booting."""
_ANSWER_SECONDS = 5
_ASK_AGAIN_SECONDS = 2.0
_SILENT = {
    libvirt.VIR_ERR_AGENT_UNRESPONSIVE,
    libvirt.VIR_ERR_AGENT_UNSYNCED,
    libvirt.VIR_ERR_OPERATION_TIMEOUT,
}

_NOT_STARTED = (
    "Failed to execute child process",
    "Failed to create child process",
    "Failed to execute helper",
)
"""GLib's error messages for a process that could not start; the last two are those on Windows."""
_FILE_CALL = re.compile(r"'guest-file-\w+': (.*)")


class AgentSilent(Unavailable):
    """No guest agent answers: it has not started, has stopped, or is not installed."""


class CannotRun(Internal):
    """The guest could not start the command, for example because the program does not exist."""


class FileRefused(Conflict):
    """The guest's operating system refused a call on a file."""


class GuestAgent:
    """Client of the guest agents in one runtime's machines."""

    def __init__(self, connection: Connection, domains: DomainReader, host: Host) -> None:
        self.clock = host.clock
        self._connection = connection
        self._domains = domains
        self._host = host
        self._slots = asyncio.Semaphore(GUEST_CALLS)
        self._turns: WeakValueDictionary[UnitId, asyncio.Lock] = WeakValueDictionary()
        """A guest that hangs blocks the thread of a call until the timeout: at most one thread for each guest."""

    async def ask(
        self, unit_id: UnitId, command: str, arguments: dict[str, Any], seconds: int = _ANSWER_SECONDS
    ) -> Any:
        """Send one command to the guest agent and return the agent's answer.

        `seconds`: how long to wait for the answer. A call whose caller is cancelled continues on its thread; until it
        returns, later calls to this guest wait. Raises AgentSilent if there is none, and the other errors
        of `agent_error`.
        """
        text = json.dumps({"execute": command, "arguments": arguments} if arguments else {"execute": command})
        turn = self._turns.setdefault(unit_id, asyncio.Lock())
        await turn.acquire()
        try:
            await self._slots.acquire()
        except asyncio.CancelledError:
            turn.release()
            raise
        call = asyncio.create_task(
            self._connection.use_guest(_command, unit_id, text, seconds), name=f"guest-agent-{unit_id}"
        )
        call.add_done_callback(lambda done: self._answered(turn, done))
        return await asyncio.shield(call)

    def _answered(self, turn: asyncio.Lock, call: asyncio.Task[Any]) -> None:
        """Let the next calls begin. Called at the end of the thread, also if the caller was cancelled before."""
        turn.release()
        self._slots.release()
        if not call.cancelled():
            call.exception()  # marks it as retrieved: after a cancellation no caller reads it

    async def wait(
        self, unit_id: UnitId, wait_seconds: float, silences: list[AgentSilent] | None = None
    ) -> None:
        """Wait until the guest agent answers. Raises AgentSilent if it does not within `wait_seconds`.

        `silences`: every failed try is appended to this list.
        """
        queue = self._connection.subscribe()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_seconds
        try:
            while True:
                try:
                    await self.ask(unit_id, "guest-ping", {})
                except AgentSilent as error:
                    if silences is not None:
                        silences.append(error)
                    left = deadline - loop.time()
                    if left <= 0:
                        raise
                else:
                    return
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(left, _ASK_AGAIN_SECONDS)):
                        await _news_of(queue, unit_id)
        finally:
            self._connection.unsubscribe(queue)

    async def boot_seconds(self, unit_id: UnitId) -> float:
        """Return for how many more seconds the machine is assumed to be booting; 0 if it is not.

        Raises Conflict if the machine does not run.
        """
        await get_on(self._domains, unit_id, "no command can run in it", (UnitState.RUNNING,))
        status = await self._domains.status(unit_id)
        age_seconds = (now_ns(self._host) - status.started_at_ns) / 1e9
        return max(0.0, BOOT_SECONDS - age_seconds)


def result_of(status: dict[str, Any]) -> ExecResult:
    """Convert a guest-exec-status answer for an ended command to an `ExecResult`. Pure.

    A command that was killed by a signal gets exit code 128 + signal.
    """
    stdout, stderr = (base64.b64decode(status.get(name, "")) for name in ("out-data", "err-data"))
    if status.get("out-truncated") or status.get("err-truncated"):
        stderr += b"\nkubeletx: the guest agent cut the output\n"
    # Windows guests may report neither.
    signal = status.get("signal")
    exit_code = status.get("exitcode", 0 if signal is None else 128 + signal)
    return ExecResult(stdout=stdout, stderr=stderr, exit_code=exit_code)


def agent_error(code: int, text: str) -> KubeletxError | None:
    """Translate an error of a guest agent call; None if `errors.translate` applies. Pure.

    `code`, `text`: libvirt's error code and message.
    """
    if code in _SILENT and "due to an error" not in text:
        return AgentSilent(
            f"no guest agent answers in the machine ({text}); commands and exec probes need the package "
            "qemu-guest-agent running in the guest; 'kubeletx attach' reaches its console without it"
        )
    if "not available due to an error" in text:
        return AgentSilent(
            f"libvirt no longer uses the machine's guest agent after an error ({text}); restart qemu-guest-agent in "
            "the guest, on its console ('kubeletx attach') or by a reboot"
        )
    if "has been disabled" in text or "has not been found" in text:
        return Unsupported(
            f"the guest agent in the machine refuses commands ({text}); allow guest-exec and guest-file-open in "
            "its settings"
        )
    if any(words in text for words in _NOT_STARTED):
        return CannotRun(text.rpartition("guest-exec': ")[2])
    if (refusal := _FILE_CALL.search(text)) is not None:
        return FileRefused(refusal[1])
    if code == libvirt.VIR_ERR_ARGUMENT_UNSUPPORTED:
        return Unsupported(
            f"the machine was made without a channel for the guest agent ({text}); delete and create its pod again"
        )
    if code == libvirt.VIR_ERR_RPC or "exceeds maximum" in text:
        return Conflict(
            f"the command ended, but its output is lost: libvirt carries about {OUTPUT_LIMIT_BYTES >> 20} MiB ({text})"
        )
    return None


async def _news_of(queue: asyncio.Queue[Any], unit_id: UnitId) -> None:
    """Wait for a lifecycle event of the machine or of its guest agent, or for the end of the subscription."""
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
    try:
        return msgspec.json.decode(answer, type=dict[str, Any])["return"]
    except (msgspec.DecodeError, UnicodeError, KeyError, RecursionError) as error:
        raise Internal(f"the guest agent of machine {uuid} did not answer with JSON") from error
