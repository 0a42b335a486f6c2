"""A kubelet's API in front of a fake agent, and clients of it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp import web

from kubeletx.api import Unavailable
from kubeletx.kube.client import ClusterAccess, KubeClient
from kubeletx.kube.types.container import Container
from kubeletx.kube.types.core import ObjectMeta, Pod, PodSpec
from kubeletx.server.access.authentication import Authenticator
from kubeletx.server.access.authorization import AlwaysAllow, Authorizer
from kubeletx.server.access.self_signed import ensure_pair
from kubeletx.server.access.tls import ServerTls, TlsPlan
from kubeletx.server.kubelet import logs as kubelet_logs
from kubeletx.server.kubelet import metrics as kubelet_metrics
from kubeletx.server.kubelet import node_logs as kubelet_node_logs
from kubeletx.server.kubelet import pods as kubelet_pods
from kubeletx.server.kubelet import streams as kubelet_streams
from kubeletx.server.kubelet import zpages as kubelet_zpages
from kubeletx.server.kubelet.api import KubeletServer, Listen
from kubeletx.server.kubelet.node_logs import NodeLogs
from kubeletx.server.kubelet.route import KubeletRoute
from kubeletx.server.kubelet.zpages import verbosity_routes
from kubeletx.server.metrics.figures import Figures, FiguresSource
from kubeletx.server.metrics.http_counts import HttpCounts
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import CertificateAuthority, Pair
from kubeletx_testing.https_session import https_session
from tests.unit.server.fake_admin import FakeAdminBackend

T = TypeVar("T")
LISTEN = Listen(address="127.0.0.1", port=0)
IMPATIENT = Listen(address="127.0.0.1", port=0, handshake_seconds=0.2, idle_seconds=0.2)


class NoFigures:
    """No one measures."""

    async def figures(self) -> Figures:
        raise Unavailable("nobody measures here")


async def inline(function: Callable[..., T], /, *args: Any) -> T:
    """In place of a thread."""
    return function(*args)


class Api:
    """One server, the authority of its clients, and a client that may do everything."""

    def __init__(
        self, server: KubeletServer, backend: FakeAdminBackend, authority: CertificateAuthority
    ) -> None:
        self.server, self.backend, self.authority = server, backend, authority
        self.verbosities: list[int] = []
        self.websockets: Counter[str] = Counter()
        self.counts = HttpCounts()
        self.admin = authority.client("admin", ["system:masters"])

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.server.port}"

    def tls(self, certificate: Pair | None) -> ssl.SSLContext:
        """As API servers without a kubelet authority have it: any server is taken."""
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if certificate is not None:
            context.load_cert_chain(certificate.cert_file, certificate.key_file)
        return context

    @asynccontextmanager
    async def client(self, certificate: Pair | None) -> AsyncIterator[aiohttp.ClientSession]:
        async with https_session(self.tls(certificate), base_url=self.url) as session:
            yield session

    async def ask(self, method: str, path: str, *, certificate: Pair | None, **more: Any) -> tuple[int, str]:
        async with (
            asyncio.timeout(60),
            self.client(certificate) as session,
            session.request(method, path, **more) as answer,
        ):
            return answer.status, await answer.text()

    async def get(self, path: str, **more: Any) -> tuple[int, str]:
        """As the admin."""
        return await self.ask("GET", path, certificate=self.admin, **more)


async def read_slowly(api: Api, head: bytes, pause_seconds: float, upgraded: bytes = b"") -> bytes:
    """The whole answer, of which nothing is read for a while. Kernel buffers are small on both sides.

    `upgraded`: to be sent once the head of the answer was read."""
    for listening in api.server.listener.sockets:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 15)
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 15)
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", api.server.port))
    reader, writer = await asyncio.open_connection(
        sock=connection, ssl=api.tls(api.admin), server_hostname="node-1", limit=1 << 12
    )
    writer.write(head)
    answer = await reader.readuntil(b"\r\n\r\n")
    writer.write(upgraded)
    await asyncio.sleep(pause_seconds)
    try:
        return answer + await reader.read()
    finally:
        writer.close()


def pod(name: str = "web", *containers: str) -> Pod:
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default", uid="u1"),
        spec=PodSpec(containers=tuple(Container(name=one, image="i") for one in containers or ("main",))),
    )


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    authorizer: Authorizer | None = None,
    authenticator: Authenticator | None = None,
    figures: FiguresSource | None = None,
    idle_seconds: float = 3600,
    more: Sequence[KubeletRoute] = (),
    logs: NodeLogs | None = None,
    debug_flags: bool = True,
    listen: Listen = LISTEN,
) -> AsyncIterator[Api]:
    authority = CertificateAuthority(directory)
    backend = FakeAdminBackend()
    backend.put(pod())
    clock = FakeClock()
    verbosities: list[int] = []
    websockets: Counter[str] = Counter()
    routes = (
        *kubelet_pods.routes(backend.parts),
        *kubelet_metrics.routes(backend, figures or NoFigures()),
        *kubelet_logs.routes(backend),
        *kubelet_node_logs.routes(logs or NodeLogs(blocking=inline, root=directory / "log")),
        *verbosity_routes(verbosities.append, enabled=debug_flags),
        *kubelet_streams.routes(backend, idle_seconds=idle_seconds, websockets=websockets),
        *more,
    )
    server = KubeletServer(
        listen,
        tls=ServerTls(
            TlsPlan(client_ca=authority.ca_file),
            lambda: ensure_pair(directory / "pki", "node-1", ("127.0.0.1",), clock.now()),
            clock,
        ),
        authenticator=authenticator or Authenticator(tokens=None, anonymous=False),
        authorizer=authorizer or AlwaysAllow(),
        routes=(*routes, *kubelet_zpages.routes(backend, routes, clock)),
        counts=(counts := HttpCounts()),
    )
    await server.start()
    try:
        api = Api(server, backend, authority)
        api.verbosities, api.websockets, api.counts = verbosities, websockets, counts
        yield api
    finally:
        await server.stop()


class ReviewServer:
    """Answers reviews as `answer` says; remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer: dict[str, Any] = {}
        self.code = 201

    @asynccontextmanager
    async def client(self, clock: FakeClock) -> AsyncIterator[KubeClient]:
        async def review(request: web.Request) -> web.Response:
            self.asked.append(json.loads(await request.read()))
            return web.json_response({"status": self.answer}, status=self.code)

        app = web.Application()
        app.router.add_post("/apis/{group}/v1/{plural}", review)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        client = KubeClient(ClusterAccess(server=f"http://127.0.0.1:{runner.addresses[0][1]}"), clock=clock)
        try:
            yield client
        finally:
            await client.close()
            await runner.cleanup()
