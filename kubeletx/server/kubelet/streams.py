"""``/exec``, ``/attach``, ``/portForward`` and ``/run`` of the kubelet's API.

`kubeletx.streaming.serving` serves exec and attach. A port-forward connection is always decoded here, never passed to
the runtime unchanged: its protocol is SPDY/3.1, SPDY/3.1 inside a WebSocket, or the older WebSocket protocol. Source:
kubelet, pkg/kubelet/server/server.go.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

from aiohttp import web

from kubeletx.api import Channel, KubeletxError, Session, StreamRequest, StreamUrl
from kubeletx.streaming import websocket
from kubeletx.streaming.channels import PROTOCOLS
from kubeletx.streaming.idle import Idle
from kubeletx.streaming.remote_client import open_port_forward
from kubeletx.streaming.serving import (
    check_streams,
    offer_of,
    open_in_time,
    open_url,
    serve_command,
    stream_request,
)
from kubeletx.streaming.spdy_server import (
    PORT_FORWARD_PROTOCOLS,
    REMOTE_COMMAND_PROTOCOLS,
    accept_upgrade,
    serve_port_forward,
)
from kubeletx.streaming.takeover import TakenOver, take_over
from kubeletx.streaming.tunnel import TUNNEL_PROTOCOLS, Tunnel, tunnel_response

from ..backend import PodVerbs
from ..views import PodTarget
from .route import Handler, KubeletRoute, find_pod, target_of

MAX_OUTPUT_BYTES = 16 << 20
"""Limit of the output of ``/run``, which is kept in memory and sent when the command has ended."""


def routes(backend: PodVerbs, *, idle_seconds: float, websockets: Counter[str]) -> tuple[KubeletRoute, ...]:
    """Return the routes ``/exec``, ``/attach``, ``/portForward`` and ``/run``.

    `idle_seconds`: a stream without data for this long is closed. `websockets`: counts, by subresource, the
    WebSocket streams that end at this node (protocol v5 and SPDY tunnels). Older API servers translate these to SPDY.
    """

    def command(
        verb: str, open_: Callable[[web.Request, StreamRequest], Awaitable[Session | StreamUrl]]
    ) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            wanted = check_streams(stream_request(request))
            offer = offer_of(request, REMOTE_COMMAND_PROTOCOLS, PROTOCOLS)
            if not offer.can_pass:
                websockets[verb] += 1
            async with backend.awake(target_of(request)):
                return await serve_command(
                    request, offer, wanted, lambda: open_(request, wanted), idle_seconds=idle_seconds
                )

        return handle

    async def exec_(request: web.Request, wanted: StreamRequest) -> Session | StreamUrl:
        if not wanted.command:
            raise web.HTTPBadRequest(text="you must specify a command")
        return await backend.exec(target_of(request), request.match_info["container"], wanted)

    async def attach(request: web.Request, wanted: StreamRequest) -> Session | StreamUrl:
        return await backend.attach(target_of(request), request.match_info["container"], wanted)

    async def port_forward(request: web.Request) -> web.StreamResponse:
        target = target_of(request)
        offer = offer_of(request, PORT_FORWARD_PROTOCOLS, (*TUNNEL_PROTOCOLS, *PROTOCOLS))
        ports = () if offer.is_spdy or offer.is_tunnel else ports_of(request)
        if offer.is_tunnel:
            websockets["portforward"] += 1
        await find_pod(backend, target)
        idle = Idle(idle_seconds)

        async def connect(port: int) -> Session:
            idle.touch()
            return idle.watch(await open_forwarded(backend, target, port))

        if offer.is_spdy:
            pipe = take_over(request)
            pipe.writer.write(accept_upgrade(offer.protocol))
            await idle.guard(serve_port_forward(pipe.reader, pipe.writer, connect))
            return TakenOver()
        if offer.is_tunnel:
            ws = tunnel_response()
            await ws.prepare(request)
            async with Tunnel(ws) as tunnel, websocket.kept_awake(ws):
                await idle.guard(serve_port_forward(tunnel, tunnel, connect))
            return ws
        ws = websocket.websocket_response()
        await ws.prepare(request)
        await idle.guard(websocket.serve_port_forward(ws, ports, connect))
        return ws

    async def run(request: web.Request) -> web.StreamResponse:
        words = request.query.get("cmd", "").split()
        if not words:
            raise web.HTTPBadRequest(text="you must specify a command in cmd")
        wanted = StreamRequest(command=tuple(words))
        target = target_of(request)
        async with backend.awake(target):
            opened = await backend.exec(target, request.match_info["container"], wanted)
            return web.Response(body=await _output(opened, wanted), content_type="text/plain")

    rows = [(f"/{verb}", command(verb, open_)) for verb, open_ in (("exec", exec_), ("attach", attach))]
    return (
        *(
            KubeletRoute(
                ("GET", "POST"),
                f"{verb}/{{namespace}}/{{pod}}{uid}/{{container}}",
                handler,
                is_debugging=True,
            )
            for verb, handler in rows
            for uid in ("", "/{uid}")
        ),
        *(
            KubeletRoute(
                ("GET", "POST"), f"/portForward/{{namespace}}/{{pod}}{uid}", port_forward, is_debugging=True
            )
            for uid in ("", "/{uid}")
        ),
        *(
            KubeletRoute(("POST",), f"/run/{{namespace}}/{{pod}}{uid}/{{container}}", run, is_debugging=True)
            for uid in ("", "/{uid}")
        ),
    )


def ports_of(request: web.Request) -> tuple[int, ...]:
    """Return the ports of a port-forward request in the older WebSocket protocol.

    They are in the query parameter ``port``, which may be repeated or have several ports joined by commas. Raises
    HTTPBadRequest if there is none, or for an invalid one.
    """
    words = [word for text in request.query.getall("port", []) for word in text.split(",")]
    if not words:
        raise web.HTTPBadRequest(text="query parameter 'port' is required")
    for word in words:
        if not (word.isascii() and word.isdigit() and 0 < int(word) < 65536):
            raise web.HTTPBadRequest(text=f"'{word}' is not a port: 1 to 65535")
    return tuple(int(word) for word in words)


async def _output(opened: Session | StreamUrl, wanted: StreamRequest) -> bytes:
    """Wait until a command has ended; return its stdout and stderr, together at most `MAX_OUTPUT_BYTES`.

    A failure of the command is ignored.
    """
    session = await open_url(opened, wanted)
    kept = bytearray()
    try:
        async for channel, data in session.output():
            if channel in (Channel.STDOUT, Channel.STDERR):
                kept += data[: MAX_OUTPUT_BYTES - len(kept)]
        with contextlib.suppress(KubeletxError):
            await session.wait()
    finally:
        await session.close()
    return bytes(kept)


async def open_forwarded(backend: PodVerbs, target: PodTarget, port: int) -> Session:
    """Open one connection to `port` of the pod. A frozen pod is thawed first, and may be frozen after `close`.

    Only open connections keep the pod awake: a port-forward may be open for days without one.
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
