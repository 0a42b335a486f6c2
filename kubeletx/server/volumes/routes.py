"""Route of volumes: ``GET /v1/volumes``, with ``watch=true`` as a stream of lists."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from ..http import flag, json_response, stream_lines
from .verbs import VolumeVerbs


def routes(backend: VolumeVerbs) -> Iterable[web.RouteDef]:
    """Return the admin socket's route of volumes."""

    async def volumes(request: web.Request) -> web.StreamResponse:
        if flag(request, "watch"):
            return await stream_lines(request, backend.watch_volumes(), "LIST")
        return json_response({"items": await backend.list_volumes()})

    return (web.get("/v1/volumes", volumes),)
