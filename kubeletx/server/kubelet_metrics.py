"""Metrics of the kubelet's API, in Prometheus' text format."""

from __future__ import annotations

from aiohttp import web

from .backend import AdminBackend
from .kubelet_route import KubeletRoute
from .routes_agent import metrics_response


def routes(backend: AdminBackend) -> tuple[KubeletRoute, ...]:
    """The routes of this file."""

    async def metrics(request: web.Request) -> web.StreamResponse:
        return await metrics_response(backend)

    return (KubeletRoute(("GET",), "/metrics", metrics, ("metrics",)),)
