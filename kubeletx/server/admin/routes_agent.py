"""Routes about the agent itself and its node: version, health, metrics, plugins, configuration, usage, volumes, events, access."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from kubeletx.api import NotFound
from kubeletx.kube.types.event import EventList

from ..backend import AboutVerbs, AdminBackend
from ..healthz import health_routes
from ..http import flag, json_response, query_seconds, read_json, stream_lines
from ..views import AccessRequest
from .tasks import Tasks


def routes(backend: AdminBackend, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes about the agent and its node, such as ``/version`` and ``/v1/node``."""

    async def version(_request: web.Request) -> web.StreamResponse:
        return json_response(await backend.about.version())

    async def metrics(_request: web.Request) -> web.StreamResponse:
        return await metrics_response(backend.about)

    async def plugins(_request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.about.plugins()})

    async def reload_plugins(_request: web.Request) -> web.StreamResponse:
        return json_response(await backend.runtimes.reload_plugins())

    async def config(_request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.about.config_view()})

    async def panels(_request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.about.list_panels()})

    async def panel(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.about.show_panel(request.match_info["name"]))

    async def usage(_request: web.Request) -> web.StreamResponse:
        return json_response(await backend.node.usage())

    async def usage_history(request: web.Request) -> web.StreamResponse:
        after = request.query.get("after", "0")
        return json_response(backend.node.usage_history(int(after) if after.isdecimal() else 0))

    async def node(request: web.Request) -> web.StreamResponse:
        if flag(request, "watch"):
            return await stream_lines(request, backend.node.watch_node(), "MODIFIED")
        return json_response(await backend.node.get_node())

    async def cluster_node(_request: web.Request) -> web.StreamResponse:
        return json_response(backend.node.cluster_node())

    async def drain(request: web.Request) -> web.StreamResponse:
        steps = backend.drain.drain(query_seconds(request, "timeoutSeconds", 300.0))
        return await stream_lines(request, steps, "PROGRESS")

    async def undo_drain(_request: web.Request) -> web.StreamResponse:
        return json_response(await tasks.complete(backend.drain.undo(), "undo of a drain"))

    async def cordon(request: web.Request) -> web.StreamResponse:
        work = backend.drain.cordon_node(request.method == "POST")
        return json_response(await tasks.complete(work, "cordon"))

    async def volumes(request: web.Request) -> web.StreamResponse:
        if flag(request, "watch"):
            return await stream_lines(request, backend.volumes.watch_volumes(), "LIST")
        return json_response({"items": await backend.volumes.list_volumes()})

    async def fornaxcore(_request: web.Request) -> web.StreamResponse:
        return json_response(backend.fornaxcore())

    async def edge(_request: web.Request) -> web.StreamResponse:
        return json_response(backend.edge())

    async def access(request: web.Request) -> web.StreamResponse:
        if backend.access is None:
            raise NotFound(
                "the agent does not serve the kubelet's API, which decides who has access; start it with --kubeconfig"
            )
        if request.method == "POST":
            return json_response(await backend.access.decide(await read_json(request, AccessRequest)))
        return json_response(backend.access.files())

    async def events(request: web.Request) -> web.StreamResponse:
        if flag(request, "watch"):
            return await stream_lines(request, backend.node.watch_events(), "ADDED")
        return json_response(EventList(items=tuple(await backend.node.list_events())))

    return (
        web.get("/version", version),
        *health_routes(backend.about),
        web.get("/metrics", metrics),
        web.get("/v1/plugins", plugins),
        web.post("/v1/plugins/reload", reload_plugins),
        web.get("/v1/config", config),
        web.get("/v1/panels", panels),
        web.get("/v1/panels/{name}", panel),
        web.get("/v1/usage", usage),
        web.get("/v1/usage/history", usage_history),
        web.get("/v1/node", node),
        web.get("/v1/node/cluster", cluster_node),
        web.post("/v1/node/drain", drain),
        web.delete("/v1/node/drain", undo_drain),
        web.post("/v1/node/cordon", cordon),
        web.delete("/v1/node/cordon", cordon),
        web.get("/v1/volumes", volumes),
        web.get("/v1/events", events),
        web.get("/v1/fornaxcore", fornaxcore),
        web.get("/v1/edge", edge),
        web.get("/v1/access", access),
        web.post("/v1/access", access),
    )


async def metrics_response(backend: AboutVerbs) -> web.Response:
    """Return a response with the agent's metrics as Prometheus text. The first call imports the renderer."""
    from ..metrics.process import render

    body = render(await backend.metrics())
    return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})
