"""Files in a guest, read and written through its guest agent: any bytes, any size, one message at a time.

A call that got no answer may have taken effect. So the file position is set again before the next try.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from kubeletx.api import ExecResult, KubeletxError, UnitId

from .agent import INPUT_BYTES, AgentSilent, CannotRun, GuestAgent, Process

READ_BYTES = 256 << 10
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


class Guest:
    """The guest agent of one machine: commands, processes and files."""

    def __init__(self, agent: GuestAgent, unit_id: UnitId) -> None:
        self._agent = agent
        self._unit_id = unit_id

    async def ask(self, command: str, arguments: dict[str, Any]) -> Any:
        return await self._agent.ask(self._unit_id, command, arguments)

    def process(
        self, command: Sequence[str], stdin: bytes = b""
    ) -> contextlib.AbstractAsyncContextManager[Process]:
        return self._agent.process(self._unit_id, command, stdin)

    async def run(self, command: Sequence[str], stdin: bytes = b"") -> ExecResult:
        return await self._agent.run(self._unit_id, command, stdin)

    async def pause(self, before: float) -> float:
        return await self._agent.pause(before)

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
