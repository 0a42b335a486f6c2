"""`GuardedSession`: a plugin's session of exec, attach or port-forward, without exceptions that would end the agent."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from kubeletx.api import Channel, Session

from .shapes import describe


class GuardedSession:
    """Session that passes every call to the session of a plugin, and raises only KubeletxError and CancelledError.

    `calls`: the runtime's `GuardedCalls`, which imports this module.
    """

    def __init__(self, calls: Any, session: Session) -> None:
        self._calls = calls
        self._session = session

    def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        items: AsyncIterator[tuple[Channel, bytes]] = self._calls.stream(
            "Session.output", self._session.output, _wrong_output
        )
        return items

    async def write(self, data: bytes) -> None:
        await self._calls.call("Session.write", lambda: self._session.write(data))

    async def close_stdin(self) -> None:
        await self._calls.call("Session.close_stdin", self._session.close_stdin)

    async def resize(self, width: int, height: int) -> None:
        await self._calls.call("Session.resize", lambda: self._session.resize(width, height))

    async def wait(self) -> int:
        code: int = await self._calls.call("Session.wait", self._session.wait)
        return code

    async def close(self) -> None:
        await self._calls.call("Session.close", self._session.close)


def _wrong_output(item: Any) -> str:
    is_pair = isinstance(item, tuple) and len(item) == 2 and item[0] in (Channel.STDOUT, Channel.STDERR)
    if is_pair and isinstance(item[1], bytes | bytearray | memoryview):
        return ""
    return f"yielded {describe(item)}; must be a pair of STDOUT or STDERR and bytes"
