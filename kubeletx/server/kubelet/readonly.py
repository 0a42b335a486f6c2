"""The read-only port (off by default): serves pods, metrics and health without authentication, as in the kubelet."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from kubeletx.kube.types.core import PodList

from ..admin.routes_agent import metrics_response
from ..backend import AdminBackend
from ..healthz import HttpServer, health_routes
from ..http import json_response
from ..metrics.http_counts import HttpCounts, counting


def readonly_routes(backend: AdminBackend) -> Iterable[web.RouteDef]:
    """Return the routes ``/pods``, ``/metrics`` and ``/healthz`` of the read-only port."""

    async def pods(_request: web.Request) -> web.StreamResponse:
        return json_response(PodList(items=tuple(await backend.pods.list_pods())))

    async def metrics(_request: web.Request) -> web.StreamResponse:
        return await metrics_response(backend.about)

    return (web.get("/pods", pods), web.get("/metrics", metrics), *health_routes(backend.about))


def readonly_server(
    backend: AdminBackend, address: str, port: int, counts: HttpCounts | None = None
) -> HttpServer:
    """Make the server of ``--read-only-port``; it listens after `HttpServer.start`.

    `counts`: object that counts the requests; None: they are not counted.
    """
    routes = tuple(readonly_routes(backend))
    counter = counting(counts or HttpCounts(), "readonly", (route.path for route in routes))
    return HttpServer(name="read-only-port", address=address, port=port, routes=routes, middlewares=[counter])
