"""Files and processes in a guest, through its guest agent.

Files have any bytes and any size, and are read and written one message at a time. A call that got no answer may have
taken effect. So the file position is set again before the next try.

The end of a process is polled for, at growing intervals. Its output is returned at its end, at most 16 MiB for each
stream. A process is killed if its caller gives up.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from kubeletx.api import ExecResult, KubeletxError, UnitId

from .agent import INPUT_BYTES, AgentSilent, CannotRun, GuestAgent, result_of

READ_BYTES = 256 << 10
_FIRST_PAUSE_SECONDS = 0.05
_LAST_PAUSE_SECONDS = 1.0
_TIDY_SECONDS = 5.0
_LAST_LOOKS = 5
_TRIES = 3

Ask = Callable[[str, dict[str, Any]], Awaitable[Any]]


class GuestFile:
    """A file in a guest, opened by its guest agent."""

    def __init__(self, ask: Ask, handle: int) -> None:
        self._ask = ask
        self._handle = handle
        self._at = 0

    async def read(self) -> bytes:
        """Read the next bytes; empty at the end of the file. If the file grows, later calls return the new bytes."""
        answer = await self._call("guest-file-read", {"count": READ_BYTES})
        data = base64.b64decode(answer.get("buf-b64", ""))
        self._at += len(data)
        return data

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises FileRefused with the guest's error, such as a full disk."""
        rest = memoryview(data)
        while rest:
            part = base64.b64encode(rest[:INPUT_BYTES]).decode()
            answer = await self._call("guest-file-write", {"buf-b64": part})
            self._at += answer["count"]
            rest = rest[answer["count"] :]

    async def measure(self) -> int:
        """Return the file's size in bytes; the position is then the start of the file."""
        where = {"handle": self._handle, "offset": 0}
        size: int = (await self._ask("guest-file-seek", {**where, "whence": "end"}))["position"]
        await self._ask("guest-file-seek", {**where, "whence": "set"})
        self._at = 0
        return size

    async def flush(self) -> None:
        await self._call("guest-file-flush", {})

    async def _call(self, command: str, arguments: dict[str, Any]) -> Any:
        where = {"handle": self._handle, "offset": self._at, "whence": "set"}
        again = False
        for left in reversed(range(_TRIES)):
            try:
                if again:
                    await self._ask("guest-file-seek", where)
                return await self._ask(command, {"handle": self._handle, **arguments})
            except AgentSilent:
                if not left:
                    raise
            again = True
        raise AssertionError("unreachable")


class Process:
    """A process that the guest agent started in the guest.

    `number`: the guest agent's id of the process, which is the process id on Linux.
    """

    def __init__(self, guest: Guest, number: int) -> None:
        self._guest = guest
        self.number = number
        self.result: ExecResult | None = None
        """The result of the process; None until a poll has shown that the process has ended."""

    async def look(self) -> ExecResult | None:
        """Poll the guest agent once. Returns the result if the process has ended, else None."""
        if self.result is None:
            status = await self._guest.ask("guest-exec-status", {"pid": self.number})
            self.result = result_of(status) if status.get("exited") else None
        return self.result

    async def kill(self) -> None:
        """Try to kill the process; failures are ignored. On Linux, `number` is the process id in the guest.

        The ends of the process and of kill(1) are read. Until that, the guest agent keeps them, and answers with them
        for a later process that gets the same id: a command that runs would look as if it had succeeded.
        """
        arguments = {"path": "kill", "arg": ["-9", str(self.number)]}
        with contextlib.suppress(KubeletxError, TimeoutError):
            async with asyncio.timeout(_TIDY_SECONDS):
                answer = await self._guest.ask("guest-exec", arguments)
                await Process(self._guest, answer["pid"]).end(_LAST_LOOKS)
                await self.end(_LAST_LOOKS)

    async def end(self, looks: int) -> None:
        """Poll until the process has ended, but at most `looks` times: its children may keep its output open."""
        pause = 0.0
        while await self.look() is None and (looks := looks - 1):
            pause = await self._guest.pause(pause)


class Guest:
    """The guest agent of one machine: commands, processes and files."""

    def __init__(self, agent: GuestAgent, unit_id: UnitId) -> None:
        self._agent = agent
        self._unit_id = unit_id

    async def ask(self, command: str, arguments: dict[str, Any]) -> Any:
        return await self._agent.ask(self._unit_id, command, arguments)

    @contextlib.asynccontextmanager
    async def process(self, command: Sequence[str], stdin: bytes = b"") -> AsyncIterator[Process]:
        """Start a process in the guest. If it has not ended at the end of the block, it is killed.

        `stdin`: input of the process, at most `INPUT_BYTES`. Raises CannotRun.
        """
        arguments: dict[str, Any] = {"path": command[0], "arg": list(command[1:]), "capture-output": True}
        if stdin:
            arguments["input-data"] = base64.b64encode(stdin).decode()
        process = Process(self, (await self.ask("guest-exec", arguments))["pid"])
        try:
            yield process
        finally:
            if process.result is None:
                await process.kill()

    async def pause(self, before: float = 0) -> float:
        """Sleep between two polls of a process, a little longer than the last time; returns the length in seconds.

        `before`: what the last call returned; 0 at the first call.
        """
        seconds = min(before * 1.5, _LAST_PAUSE_SECONDS) or _FIRST_PAUSE_SECONDS
        await self._agent.clock.sleep(seconds)
        return seconds

    async def run(self, command: Sequence[str], stdin: bytes = b"") -> ExecResult:
        """Run a command to its end and return its result; only for short outputs. Raises CannotRun."""
        pause = 0.0
        async with self.process(command, stdin) as process:
            while (result := await process.look()) is None:
                pause = await self.pause(pause)
        return result

    async def has(self, program: str) -> bool:
        """Return True if the guest has this program. The program is called with ``--version``."""
        try:
            await self.run((program, "--version"))
        except CannotRun:
            return False
        return True

    @contextlib.asynccontextmanager
    async def opened(self, path: str, mode: str) -> AsyncIterator[GuestFile]:
        """Open a file for the duration of the block. `mode`: ``rb`` or ``wb``. Raises FileRefused."""
        handle = await self.ask("guest-file-open", {"path": path, "mode": mode})
        file = GuestFile(self.ask, handle)
        try:
            yield file
            if mode != "rb":
                await file.flush()
        finally:
            with contextlib.suppress(KubeletxError):
                await self.ask("guest-file-close", {"handle": handle})
