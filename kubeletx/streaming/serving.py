"""The server's side of exec and attach for the kubelet's API and the admin socket.

    runtime gives a URL      bytes go through to it as they are, whatever the client speaks (DECISIONS 17)
    it gives a session       this is the server: SPDY/3.1, or WebSocket
    client offers only v5    this is the server too, since runtimes do not speak it

`offer_of` checks the client's protocols first, so that a request that cannot be served runs no command. An error of
`open_` is raised before the upgrade and becomes the answer to it: API servers pass its text on. Needs aiohttp.
Source: kubelet, pkg/kubelet/server/server.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from kubeletx.api import Session, StreamRequest, StreamUrl, TimedOut

from . import websocket
from .channels import WsProtocol
from .idle import Idle
from .remote_client import open_session
from .spdy_server import accept_upgrade, pick_protocol, serve_remote_command
from .takeover import TakenOver, pass_through, take_over
from .tunnel import TUNNEL_PROTOCOLS
from .upgrade import PROTOCOL_HEADER

OPEN_TIMEOUT_SECONDS = 30.0
"""Time to connect to a runtime's streaming URL and open its streams."""

Open = Callable[[], Awaitable[Session | StreamUrl]]


class QueryNames(msgspec.Struct, frozen=True):
    """Names of the query parameters that select streams, and the values of such a parameter that mean yes."""

    stdin: str
    stdout: str
    stderr: str
    true: tuple[str, ...]


KUBELET_NAMES = QueryNames(stdin="input", stdout="output", stderr="error", true=("1",))
"""The kubelet's query parameters. Source: core/v1, ExecStdinParam and its neighbours."""


class Offer(msgspec.Struct, frozen=True):
    """Protocol of one client: SPDY or WebSocket, and the subprotocol that was picked for it.

    `protocol`: the one that this server prefers of those that the client offered; empty: a WebSocket without
    any.
    """

    is_spdy: bool
    protocol: str

    @property
    def can_pass(self) -> bool:
        """True if a runtime's streaming server may get the client's bytes unchanged; no runtime speaks v5."""
        return self.protocol != WsProtocol.V5.value

    @property
    def is_tunnel(self) -> bool:
        """True if the client sends SPDY inside a WebSocket."""
        return self.protocol in TUNNEL_PROTOCOLS


def stream_request(request: web.Request, names: QueryNames = KUBELET_NAMES) -> StreamRequest:
    """Read from the query: the command (repeated), the wanted streams, and tty. With a terminal there is no stderr."""
    query = request.query

    def has(name: str) -> bool:
        return query.get(name, "").lower() in names.true

    tty = has("tty")
    return StreamRequest(
        command=tuple(query.getall("command", [])),
        stdin=has(names.stdin),
        stdout=has(names.stdout),
        stderr=has(names.stderr) and not tty,
        tty=tty,
    )


def check_streams(wanted: StreamRequest) -> StreamRequest:
    """Return `wanted`. Raises HTTPBadRequest if it asks for none of stdin, stdout and stderr."""
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise web.HTTPBadRequest(text="you must specify at least 1 of stdin, stdout, stderr")
    return wanted


def offer_of(request: web.Request, spdy_protocols: tuple[str, ...], subprotocols: tuple[str, ...]) -> Offer:
    """Choose the protocol for a client's upgrade request, before any command runs.

    Raises HTTPBadRequest if the request is no upgrade, and HTTPForbidden if client and server have no
    protocol in common. `spdy_protocols`, `subprotocols`: those that the server has, best first.
    """
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
    """Serve one exec or attach until it ends. `open_`: starts it at the runtime.

    `idle_seconds`: a stream without data for this long is closed.
    """
    found = await open_()
    if isinstance(found, StreamUrl):
        if offer.can_pass:
            await pass_through(request, found.url, idle_seconds=idle_seconds)
            return TakenOver()
        found = await open_url(found, wanted)
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


async def open_url(found: Session | StreamUrl, wanted: StreamRequest) -> Session:
    """Return `found` if it is a session; else connect to the runtime's streaming URL. Raises TimedOut."""
    return await open_in_time(open_session(found.url, wanted)) if isinstance(found, StreamUrl) else found


async def open_in_time(opening: Awaitable[Session]) -> Session:
    """Return the session. Raises TimedOut if the runtime's server takes longer than OPEN_TIMEOUT_SECONDS."""
    try:
        async with asyncio.timeout(OPEN_TIMEOUT_SECONDS):
            return await opening
    except TimeoutError as err:
        raise TimedOut(f"the runtime opened no streams within {OPEN_TIMEOUT_SECONDS:g}s") from err
