"""Exec, attach and port-forward on the admin socket: one WebSocket for each session of the backend.

The upgrade is answered before the backend is called, so that an error of the backend can be sent as a Status on the
error channel: a client cannot read the body of a refused upgrade. If the backend returns the URL of a runtime's
streaming server, the session is opened there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable

from aiohttp import web

from kubeletx.api import InvalidConfig, KubeletxError, Session, StreamUrl
from kubeletx.streaming.remote_client import open_port_forward
from kubeletx.streaming.serving import QueryNames, open_in_time, open_url, stream_request
from kubeletx.streaming.websocket import send_error, serve_remote_command, websocket_response

from ..backend import PodVerbs
from .routes_pods import target_of

NAMES = QueryNames(stdin="stdin", stdout="stdout", stderr="stderr", true=("1", "true"))


async def serve_exec(request: web.Request, backend: PodVerbs) -> web.StreamResponse:
    """Serve a request that runs a command in a container."""

    async def connect() -> Session:
        wanted = stream_request(request, NAMES)
        if not wanted.command:
            raise InvalidConfig(field="command", problem="is empty", fix="name a command")
        return await open_url(await backend.exec(target_of(request), _container(request), wanted), wanted)

    return await _serve(request, backend, connect)


async def serve_attach(request: web.Request, backend: PodVerbs) -> web.StreamResponse:
    """Serve a request that joins the streams of a running container."""

    async def connect() -> Session:
        wanted = stream_request(request, NAMES)
        return await open_url(await backend.attach(target_of(request), _container(request), wanted), wanted)

    return await _serve(request, backend, connect)


async def serve_port_forward(request: web.Request, backend: PodVerbs) -> web.StreamResponse:
    """Serve a request that forwards one port of a pod."""

    async def connect() -> Session:
        port = _port(request)
        opened = await backend.port_forward(target_of(request), port)
        if isinstance(opened, StreamUrl):
            return await open_in_time(open_port_forward(opened.url, port))
        return opened

    return await _serve(request, backend, connect)


async def _serve(
    request: web.Request, backend: PodVerbs, connect: Callable[[], Awaitable[Session]]
) -> web.StreamResponse:
    ws = websocket_response()
    await ws.prepare(request)
    async with contextlib.AsyncExitStack() as stack:
        try:
            await stack.enter_async_context(backend.awake(target_of(request)))
            session = await connect()
        except KubeletxError as error:
            await send_error(ws, error)
            return ws
        await serve_remote_command(ws, session)
    return ws


def _container(request: web.Request) -> str:
    return request.query.get("container", "")


def _port(request: web.Request) -> int:
    text = request.query.get("port", "")
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 65536:
        raise InvalidConfig(field="port", problem=f"{text!r} is not a port", fix="give 1 to 65535")
    return int(text)
