"""Routes of config maps, secrets and claims without a cluster: list, delete. `routes_pods` applies them."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from ..backend import ObjectVerbs
from ..http import json_response
from .tasks import Tasks


def routes(backend: ObjectVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes that list and delete objects. `{kind}` is a kind such as ConfigMap."""

    async def listed(request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.list_objects(request.match_info["kind"])})

    async def delete(request: web.Request) -> web.StreamResponse:
        info = request.match_info
        kind, namespace, name = info["kind"], info["namespace"], info["name"]
        work = backend.delete_object(kind, namespace, name)
        await tasks.complete(work, f"delete {kind} {namespace}/{name}")
        return json_response({})

    return (
        web.get("/v1/objects/{kind}", listed),
        web.delete("/v1/objects/{kind}/{namespace}/{name}", delete),
    )
