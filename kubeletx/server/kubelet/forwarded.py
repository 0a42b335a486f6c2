"""`open_forwarded`: opens one connection of a port-forward, which keeps the pod awake until it is closed.

A port-forward may be open for days with few connections. A frozen pod is thawed for each connection, not for the
port-forward itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

from kubeletx.api import Channel, Session, StreamUrl
from kubeletx.streaming.remote_client import open_port_forward
from kubeletx.streaming.serving import open_in_time

from ..backend import PodVerbs
from ..views import PodTarget


async def open_forwarded(backend: PodVerbs, target: PodTarget, port: int) -> Session:
    """Open one connection to `port` of the pod. A frozen pod is thawed first, and may be frozen after `close`.

    Raises what `PodVerbs.awake` and `PodVerbs.port_forward` raise; the pod is then not kept awake.
    """
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(backend.awake(target))
        opened = await backend.port_forward(target, port)
        if isinstance(opened, StreamUrl):
            opened = await open_in_time(open_port_forward(opened.url, port))
        return _Awake(opened, stack.pop_all())


class _Awake:
    """Session that forwards all calls to another one; `close` also leaves the context in which the pod is awake."""

    def __init__(self, session: Session, awake: AsyncExitStack) -> None:
        self._session = session
        self._awake = awake
        self.write = session.write
        self.close_stdin = session.close_stdin
        self.resize = session.resize
        self.wait = session.wait

    def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        return self._session.output()

    async def close(self) -> None:
        async with self._awake:
            await self._session.close()
