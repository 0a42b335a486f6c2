"""``/exec``, ``/attach``, ``/portForward`` and ``/run`` of the kubelet's API.

    runtime gives a URL      bytes go through to it as they are, whatever the client speaks (DECISIONS 17)
    it gives a session       this is the server: SPDY/3.1, or WebSocket
    client offers only v5    this is the server too, since runtimes do not speak it
    forwarded ports          always end here, in SPDY/3.1, plain or inside a WebSocket, or in the older WebSocket form

The client's protocols are looked at first, so that a request that cannot be served runs no command. What the
backend refuses is the answer to the upgrade: API servers pass its words on. Source: kubelet.md section 20.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from kubeletx.api import Channel, KubeletxError, Session, StreamRequest, StreamUrl
from kubeletx.streaming import websocket
from kubeletx.streaming.channels import PROTOCOLS, WsProtocol
from kubeletx.streaming.idle import Idle
from kubeletx.streaming.remote_client import open_port_forward, open_session
from kubeletx.streaming.spdy_server import (
    PORT_FORWARD_PROTOCOLS,
    REMOTE_COMMAND_PROTOCOLS,
    accept_upgrade,
    pick_protocol,
    serve_port_forward,
    serve_remote_command,
)
from kubeletx.streaming.takeover import TakenOver, pass_through, take_over
from kubeletx.streaming.tunnel import TUNNEL_PROTOCOLS, Tunnel, tunnel_response
from kubeletx.streaming.upgrade import PROTOCOL_HEADER

from ..admin.routes_streams import in_time
from ..backend import AdminBackend
from .route import Handler, KubeletRoute, find_pod, target_of

MAX_OUTPUT_BYTES = 16 << 20
"""Of ``/run``, whose answer is sent when the command has ended."""

Open = Callable[[], Awaitable[Session | StreamUrl]]


class Offer(msgspec.Struct, frozen=True):
    """What the client speaks. `protocol`: picked by us."""

    is_spdy: bool
    protocol: str

    @property
    def can_pass(self) -> bool:
        """Whether every streaming server speaks it."""
        return self.protocol != WsProtocol.V5.value

    @property
    def is_tunnel(self) -> bool:
        """Whether SPDY comes inside a WebSocket."""
        return self.protocol in TUNNEL_PROTOCOLS


def routes(
    backend: AdminBackend, *, idle_seconds: float, websockets: Counter[str]
) -> tuple[KubeletRoute, ...]:
    """The routes of this file. `idle_seconds`: a stream that carries nothing for so long is closed.

    `websockets`: counts, by subresource, what API servers once translated: WebSocket v5 and tunnels.
    """

    def command(
        verb: str, open_: Callable[[web.Request, StreamRequest], Awaitable[Session | StreamUrl]]
    ) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            wanted = stream_request(request)
            offer = offer_of(request, REMOTE_COMMAND_PROTOCOLS, PROTOCOLS)
            if not offer.can_pass:
                websockets[verb] += 1
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
            found = await backend.port_forward(target, port)
            if isinstance(found, StreamUrl):
                found = await in_time(open_port_forward(found.url, port))
            return idle.watch(found)

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
        found = await backend.exec(target_of(request), request.match_info["container"], wanted)
        return web.Response(body=await _output(found, wanted), content_type="text/plain")

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


def stream_request(request: web.Request) -> StreamRequest:
    """The query in the kubelet's words. A terminal has no stderr of its own."""
    query = request.query

    def has(name: str) -> bool:
        return query.get(name) == "1"

    tty = has("tty")
    wanted = StreamRequest(
        command=tuple(query.getall("command", [])),
        stdin=has("input"),
        stdout=has("output"),
        stderr=has("error") and not tty,
        tty=tty,
    )
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise web.HTTPBadRequest(text="you must specify at least 1 of stdin, stdout, stderr")
    return wanted


def ports_of(request: web.Request) -> tuple[int, ...]:
    """Of the older WebSocket form: ``port``, repeated or joined by commas."""
    words = [word for text in request.query.getall("port", []) for word in text.split(",")]
    if not words:
        raise web.HTTPBadRequest(text="query parameter 'port' is required")
    for word in words:
        if not (word.isascii() and word.isdigit() and 0 < int(word) < 65536):
            raise web.HTTPBadRequest(text=f"'{word}' is not a port: 1 to 65535")
    return tuple(int(word) for word in words)


def offer_of(request: web.Request, spdy_protocols: tuple[str, ...], subprotocols: tuple[str, ...]) -> Offer:
    """Raises HTTPBadRequest for what is no upgrade, HTTPForbidden for protocols that nobody here speaks."""
    upgrade = request.headers.get("Upgrade", "").lower()
    if "upgrade" not in request.headers.get("Connection", "").lower():
        upgrade = ""
    if upgrade == "spdy/3.1":
        offered = request.headers.getall(PROTOCOL_HEADER, [])
        if not offered:
            raise web.HTTPBadRequest(text=f"unable to upgrade: {PROTOCOL_HEADER} is required")
        picked = pick_protocol(offered, spdy_protocols)
        if picked is None:
            accepted = {"X-Accepted-Stream-Protocol-Versions": ", ".join(spdy_protocols)}
            text = f"unable to upgrade: none of the protocols {', '.join(offered)} is spoken here"
            raise web.HTTPForbidden(text=text, headers=accepted)
        return Offer(True, picked)
    if upgrade == "websocket":
        offered = request.headers.getall("Sec-WebSocket-Protocol", [])
        picked = pick_protocol(offered, subprotocols) if offered else ""
        if picked is None:
            text = f"none of the subprotocols {', '.join(offered)} is spoken here"
            raise web.HTTPForbidden(text=text)
        if not websocket.make_response(subprotocols).can_prepare(request).ok:
            text = "unable to upgrade: this is no WebSocket handshake of version 13 with a key"
            raise web.HTTPBadRequest(text=text)
        return Offer(False, picked)
    raise web.HTTPBadRequest(text="Upgrade request required")


async def serve_command(
    request: web.Request, offer: Offer, wanted: StreamRequest, open_: Open, *, idle_seconds: float
) -> web.StreamResponse:
    """One exec or attach to its end."""
    found = await open_()
    if isinstance(found, StreamUrl):
        if offer.can_pass:
            await pass_through(request, found.url, idle_seconds=idle_seconds)
            return TakenOver()
        found = await in_time(open_session(found.url, wanted))
    idle = Idle(idle_seconds)
    session = idle.watch(found)
    try:
        if not offer.is_spdy:
            ws = websocket.websocket_response()
            await ws.prepare(request)
            await idle.guard(websocket.serve_remote_command(ws, session))
            return ws

        async def connect() -> Session:
            return session

        pipe = take_over(request)
        pipe.writer.write(accept_upgrade(offer.protocol))
        await idle.guard(serve_remote_command(pipe.reader, pipe.writer, wanted, offer.protocol, connect))
        return TakenOver()
    finally:
        await session.close()


async def _output(found: Session | StreamUrl, wanted: StreamRequest) -> bytes:
    """Both streams of a command that ended, as far as they are kept; a failure's words stand at the end."""
    if isinstance(found, StreamUrl):
        found = await in_time(open_session(found.url, wanted))
    kept = bytearray()
    try:
        async for channel, data in found.output():
            if channel in (Channel.STDOUT, Channel.STDERR):
                kept += data[: MAX_OUTPUT_BYTES - len(kept)]
        with contextlib.suppress(KubeletxError):
            await found.wait()
    finally:
        await found.close()
    return bytes(kept)
