"""The floor of an open session: a bare session service that thaws by the freezer's file and knows no states.

It listens on the agent's socket while the agent is stopped. The application is the same process in the same container.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from kubeletx.sessions.certificates import load_ca
from kubeletx.sessions.server import EMPTY, SERVICE
from kubeletx.sessions.stubs import session_service_pb2 as pb

from .standby_lab import Freezer


class BareService:
    """Sends commands to instances, and waits for their reports."""

    def __init__(self) -> None:
        self._streams: dict[str, asyncio.Queue[bytes]] = {}
        self._reports: dict[tuple[str, int], asyncio.Future[float]] = {}
        self._count = 0

    async def serve(self, root: Path, pods: Sequence[str]) -> grpc.aio.Server:
        """Listen in the agent's place, below its directory of sessions `root`, until all pods are connected."""
        now = datetime.now(UTC)
        ca = load_ca(root, now)
        pair = ca.server_pair(now)
        server = grpc.aio.server()
        methods: dict[str, Any] = {
            "getMessage": grpc.unary_stream_rpc_method_handler(self._get),
            "putMessage": grpc.unary_unary_rpc_method_handler(self._put),
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, methods),))
        (root / "socket" / "session.sock").unlink(missing_ok=True)
        credentials = grpc.ssl_server_credentials([(pair.key, pair.certificate)], ca.pem, True)
        server.add_secure_port(f"unix:{root}/socket/session.sock", credentials)
        await server.start()
        async with asyncio.timeout(60):
            while not set(pods) <= self._streams.keys():  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        return server

    async def wake(self, pod: str, freezer: Freezer) -> float:
        """Freeze a pod, open a session on it, thaw it, and close the session; return milliseconds to its report."""
        freezer.write(frozen=True)
        async with asyncio.timeout(30):
            while not freezer.is_frozen():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
        self._count += 1
        id = f"floor/s{self._count}"
        named = pb.SessionIdentifier(podId=pod, identifier=id)
        opened, closed = self._expect(id, pb.STATE_OPEN), self._expect(id, pb.STATE_CLOSED)
        message = pb.SessionMessage(sessionIdentifier=named, messageType=pb.OPEN_SESSION)
        message.openSession.SetInParent()
        began = time.monotonic()
        self._streams[pod].put_nowait(message.SerializeToString())
        freezer.write(frozen=False)
        at = await asyncio.wait_for(opened, 30)
        message = pb.SessionMessage(sessionIdentifier=named, messageType=pb.CLOSE_SESSION)
        message.closeSession.SetInParent()
        self._streams[pod].put_nowait(message.SerializeToString())
        await asyncio.wait_for(closed, 30)
        return (at - began) * 1000

    def _expect(self, id: str, state: int) -> asyncio.Future[float]:
        future = self._reports[id, state] = asyncio.get_running_loop().create_future()
        return future

    async def _get(self, request: bytes, _context: Any) -> AsyncIterator[bytes]:
        stream = self._streams[pb.PodIdentifier.FromString(request).podId] = asyncio.Queue()
        while True:
            yield await stream.get()

    async def _put(self, request: bytes, _context: Any) -> bytes:
        message = pb.SessionMessage.FromString(request)
        key = message.sessionIdentifier.identifier, int(message.sessionStatus.sessionState)
        if (future := self._reports.get(key)) is not None and not future.done():
            future.set_result(time.monotonic())
        return EMPTY
