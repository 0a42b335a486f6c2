"""The read-only port (off by default): serves pods, metrics and health without authentication, as in the kubelet."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from kubeletx.kube.types.core import PodList

from ..backend import AdminBackend
from ..healthz import HttpServer, health_routes
from ..http import json_response
from ..metrics.figures import FiguresSource
from ..metrics.http_counts import HttpCounts, counting
from .metrics import routes as metrics_routes


def readonly_routes(backend: AdminBackend, figures: FiguresSource) -> Iterable[web.RouteDef]:
    """Return the routes of the read-only port: ``/pods``, health, and the metrics routes of the kubelet's API."""

    async def pods(_request: web.Request) -> web.StreamResponse:
        return json_response(PodList(items=tuple(await backend.pods.list_pods())))

    metrics = metrics_routes(backend.about, figures)
    return (
        web.get("/pods", pods),
        *(web.get(route.path, route.handler) for route in metrics),
        *health_routes(backend.about),
    )


def readonly_server(
    backend: AdminBackend, figures: FiguresSource, address: str, port: int, counts: HttpCounts | None = None
) -> HttpServer:
    """Make the server of ``--read-only-port``; it listens after `HttpServer.start`.

    `figures`: measures usage for the metrics. `counts`: object that counts the requests; None: they are not counted.
    """
    routes = tuple(readonly_routes(backend, figures))
    counter = counting(counts or HttpCounts(), "readonly", (route.path for route in routes))
    return HttpServer(name="read-only-port", address=address, port=port, routes=routes, middlewares=[counter])
