"""Routes of images: list, watch, pull, remove, prune."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from kubeletx.api import InvalidConfig

from ..backend import ImageVerbs
from ..http import flag, json_response, stream_lines
from .tasks import Tasks


def routes(backend: ImageVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes below ``/v1/images``. `tasks` runs changes to their end if the client disconnects."""

    async def images(request: web.Request) -> web.StreamResponse:
        if flag(request, "watch"):
            return await stream_lines(request, backend.watch_images(), "LIST")
        return json_response(await backend.list_images())

    async def pull(request: web.Request) -> web.StreamResponse:
        updates = backend.pull_image(_image(request), request.query.get("runtime"))
        return await stream_lines(request, updates, "PROGRESS")

    async def remove(request: web.Request) -> web.StreamResponse:
        change = backend.remove_image(_image(request), request.query.get("runtime"))
        return json_response({"stores": await tasks.complete(change, "image rm")})

    async def prune(request: web.Request) -> web.StreamResponse:
        change = backend.prune_images(request.query.get("runtime"), flag(request, "all"))
        return json_response(await tasks.complete(change, "image prune"))

    return (
        web.get("/v1/images", images),
        web.delete("/v1/images", remove),
        web.post("/v1/images/pull", pull),
        web.post("/v1/images/prune", prune),
    )


def _image(request: web.Request) -> str:
    image = request.query.get("image", "")
    if not image:
        raise InvalidConfig(field="image", problem="is empty", fix="name an image")
    return image
