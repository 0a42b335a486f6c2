"""Serves exec and attach requests of the kubelet's API and of the agent's admin socket. Needs aiohttp.

    runtime returns a URL               bytes are copied to and from that URL unchanged (DECISIONS 17)
    runtime returns a session           this module serves it to the client over SPDY/3.1 or WebSocket
    URL, but the client offers only v5  this module connects to the URL itself and serves the client:
                                        streaming servers of runtimes do not support v5

`offer_of` checks the client's protocols first, so that no command is run for a request that cannot be served. If the
runtime fails to start the command, the error is raised before the upgrade and becomes the HTTP answer, whose text API
servers forward. Source: kubelet, pkg/kubelet/server/server.go.
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
"""Time limit for connecting to a runtime's streaming URL and opening its streams."""

Open = Callable[[], Awaitable[Session | StreamUrl]]


class QueryNames(msgspec.Struct, frozen=True):
    """Names of the query parameters that select stdin, stdout and stderr. `true`: values that select the stream."""

    stdin: str
    stdout: str
    stderr: str
    true: tuple[str, ...]


KUBELET_NAMES = QueryNames(stdin="input", stdout="output", stderr="error", true=("1",))
"""Query parameters of the kubelet's API. Source: core/v1, ExecStdinParam, ExecStdoutParam, ExecStderrParam."""


class Offer(msgspec.Struct, frozen=True):
    """Protocol that was chosen for one client. `is_spdy`: SPDY if True, WebSocket if False.

    `protocol`: the chosen subprotocol; empty for a WebSocket client that offers no subprotocol.
    """

    is_spdy: bool
    protocol: str

    @property
    def can_pass(self) -> bool:
        """True if the client's bytes may be copied to a runtime's streaming server unchanged.

        False only for WebSocket v5, which runtimes do not support.
        """
        return self.protocol != WsProtocol.V5.value

    @property
    def is_tunnel(self) -> bool:
        return self.protocol in TUNNEL_PROTOCOLS


def stream_request(request: web.Request, names: QueryNames = KUBELET_NAMES) -> StreamRequest:
    """Read the command, the selected streams and `tty` from the query of an exec or attach request.

    With a terminal, stderr is never selected. `names`: names of the query parameters.
    """
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
    """Return `wanted` unchanged. Raises HTTPBadRequest if it selects none of stdin, stdout and stderr."""
    if not (wanted.stdin or wanted.stdout or wanted.stderr):
        raise web.HTTPBadRequest(text="you must specify at least 1 of stdin, stdout, stderr")
    return wanted


def offer_of(request: web.Request, spdy_protocols: tuple[str, ...], subprotocols: tuple[str, ...]) -> Offer:
    """Choose the protocol for a client's upgrade request. Call it before the command is started.

    `spdy_protocols`, `subprotocols`: SPDY and WebSocket subprotocols that the server supports, in order of
    preference. Raises HTTPBadRequest if the request is not a valid upgrade to either, and HTTPForbidden if
    client and server have no subprotocol in common.
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
    """Serve one exec or attach request until it ends, and return the response for aiohttp.

    `offer`: from `offer_of`. `wanted`: the selected streams. `open_`: starts the exec or attach in the runtime,
    and returns its session or URL. `idle_seconds`: the connection is closed after this time without data.
    """
    opened = await open_()
    if isinstance(opened, StreamUrl):
        if offer.can_pass:
            await pass_through(request, opened.url, idle_seconds=idle_seconds)
            return TakenOver()
        opened = await open_url(opened, wanted)
    idle = Idle(idle_seconds)
    session = idle.watch(opened)
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


async def open_url(opened: Session | StreamUrl, wanted: StreamRequest) -> Session:
    """Return a session: `opened` itself, or, if it is a URL, a new connection to that streaming server.

    Raises TimedOut if the streams are not open within `OPEN_TIMEOUT_SECONDS`.
    """
    return await open_in_time(open_session(opened.url, wanted)) if isinstance(opened, StreamUrl) else opened


async def open_in_time(opening: Awaitable[Session], seconds: float = OPEN_TIMEOUT_SECONDS) -> Session:
    """Await `opening` and return its session. Raises TimedOut after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            return await opening
    except TimeoutError as err:
        raise TimedOut(
            f"the runtime's streaming server opened no streams within {seconds:g}s; see its log"
        ) from err
