"""Metrics and statistics of the kubelet's API."""

from __future__ import annotations

from aiohttp import web

from kubeletx.node.cgroup_usage import device_name

from .backend import AdminBackend
from .cadvisor_metrics import cadvisor_metrics
from .exposition import CONTENT_TYPE
from .figures import FiguresSource
from .http import json_response
from .kubelet_route import KubeletRoute
from .probe_metrics import probe_metrics, sli_metrics
from .resource_metrics import resource_metrics
from .routes_agent import metrics_response
from .stats_summary import summary


def routes(backend: AdminBackend, source: FiguresSource) -> tuple[KubeletRoute, ...]:
    """The routes of this file."""

    async def metrics(request: web.Request) -> web.StreamResponse:
        return await metrics_response(backend)

    async def resource(request: web.Request) -> web.StreamResponse:
        return _text(resource_metrics(await source.figures()))

    async def cadvisor(request: web.Request) -> web.StreamResponse:
        return _text(cadvisor_metrics(await source.figures(), device_name))

    async def probes(request: web.Request) -> web.StreamResponse:
        view = await backend.metrics()
        return _text(probe_metrics(view.probes, view.probe_durations))

    async def slis(request: web.Request) -> web.StreamResponse:
        return _text(sli_metrics(await backend.health()))

    async def stats(request: web.Request) -> web.StreamResponse:
        is_short = request.query.get("only_cpu_and_memory", "").lower() in ("1", "t", "true")
        return json_response(summary(await source.figures(), only_cpu_and_memory=is_short))

    return (
        *(
            KubeletRoute(("GET",), f"/metrics{path}", handler, ("metrics",))
            for path, handler in (
                ("", metrics),
                ("/resource", resource),
                ("/cadvisor", cadvisor),
                ("/probes", probes),
                ("/slis", slis),
            )
        ),
        KubeletRoute(("GET",), "/stats/summary", stats, ("stats",)),
    )


def _text(body: bytes) -> web.Response:
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE})
