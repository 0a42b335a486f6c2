"""Routes of sessions: list, describe, usage, open, close."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from ..backend import SessionVerbs
from ..http import flag, json_response, query_seconds, read_json
from ..session_views import SessionRequest
from .tasks import Tasks


def routes(backend: SessionVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes below ``/v1/sessions``, and ``/v1/session-usage``. `tasks` runs changes to their end if the client disconnects.

    With ``?wait=1`` a session is opened, or closed, when the request is answered.
    """

    async def sessions(_request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.list_sessions()})

    async def one(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.find_session(id_of(request)))

    async def open_(request: web.Request) -> web.StreamResponse:
        wanted = await read_json(request, SessionRequest)
        work = backend.open_session(wanted, wait=flag(request, "wait"))
        return json_response(await tasks.complete(work, f"session open on {wanted.pod}"), 201)

    async def close(request: web.Request) -> web.StreamResponse:
        grace = None
        if "gracePeriodSeconds" in request.query:
            grace = query_seconds(request, "gracePeriodSeconds", 0.0)
        work = backend.close_session(id_of(request), grace, wait=flag(request, "wait"))
        return json_response(await tasks.complete(work, f"session close {id_of(request)}"))

    async def usage(_request: web.Request) -> web.StreamResponse:
        return json_response(await backend.session_usage())

    return (
        web.get("/v1/sessions", sessions),
        web.get("/v1/session-usage", usage),
        web.post("/v1/sessions", open_),
        web.get("/v1/sessions/{namespace}/{name}", one),
        web.delete("/v1/sessions/{namespace}/{name}", close),
    )


def id_of(request: web.Request) -> str:
    """Return the session that a request names, as ``namespace/name``."""
    return f"{request.match_info['namespace']}/{request.match_info['name']}"
