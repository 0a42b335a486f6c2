"""Routes of runtimes (list, watch, describe, add, remove, cordon, uncordon) and of their images (list, watch, pull, remove, prune)."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from kubeletx.api import InvalidConfig

from ..backend import ImageVerbs, RuntimeVerbs
from ..http import flag, json_response, query_seconds, read_json, stream_lines
from ..views import RuntimeAddition
from .tasks import Tasks


def routes(backend: RuntimeVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes below ``/v1/runtimes``. `tasks` runs changes to their end if the client disconnects."""

    async def runtimes(request: web.Request) -> web.StreamResponse:
        if flag(request, "watch"):
            return await stream_lines(request, backend.watch_runtimes(), "LIST")
        return json_response({"items": await backend.list_runtimes()})

    async def describe(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.describe_runtime(request.match_info["name"]))

    async def add(request: web.Request) -> web.StreamResponse:
        wanted = await read_json(request, RuntimeAddition)
        change = backend.add_runtime(wanted.endpoint, wanted.image_endpoint)
        return json_response(await tasks.complete(change, "runtime add"), 201)

    async def remove(request: web.Request) -> web.StreamResponse:
        steps = backend.remove_runtime(
            request.match_info["name"],
            drain=flag(request, "drain"),
            force=flag(request, "force"),
            timeout_seconds=query_seconds(request, "timeoutSeconds", 300.0),
        )
        return await stream_lines(request, steps, "PROGRESS")

    async def cordon(request: web.Request) -> web.StreamResponse:
        return json_response(
            await tasks.complete(backend.cordon(request.match_info["name"]), "runtime cordon")
        )

    async def uncordon(request: web.Request) -> web.StreamResponse:
        return json_response(
            await tasks.complete(backend.uncordon(request.match_info["name"]), "runtime uncordon")
        )

    return (
        web.get("/v1/runtimes", runtimes),
        web.post("/v1/runtimes", add),
        web.get("/v1/runtimes/{name}", describe),
        web.delete("/v1/runtimes/{name}", remove),
        web.post("/v1/runtimes/{name}/cordon", cordon),
        web.post("/v1/runtimes/{name}/uncordon", uncordon),
    )


def image_routes(backend: ImageVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
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
