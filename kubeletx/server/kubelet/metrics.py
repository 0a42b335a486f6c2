"""Routes of metrics and statistics in the kubelet's API. The first request imports the renderers."""

from __future__ import annotations

from aiohttp import web

from kubeletx.kube.text.exposition import CONTENT_TYPE
from kubeletx.node.cgroups.usage import device_name

from ..admin.routes_agent import metrics_response
from ..backend import AboutVerbs
from ..http import json_response
from ..metrics.figures import FiguresSource
from .route import KubeletRoute


def routes(backend: AboutVerbs, source: FiguresSource) -> tuple[KubeletRoute, ...]:
    """Return the routes ``/metrics``, ``/metrics/{resource,cadvisor,probes,slis}`` and ``/stats/summary``."""

    async def metrics(_request: web.Request) -> web.StreamResponse:
        return await metrics_response(backend)

    async def resource(_request: web.Request) -> web.StreamResponse:
        from ..metrics.resource import resource_metrics

        return _text(resource_metrics(await source.figures()))

    async def cadvisor(_request: web.Request) -> web.StreamResponse:
        from ..metrics.cadvisor import cadvisor_metrics

        return _text(cadvisor_metrics(await source.figures(), device_name))

    async def probes(_request: web.Request) -> web.StreamResponse:
        from ..metrics.process import render_probes

        return _text(render_probes(await backend.metrics()))

    async def slis(_request: web.Request) -> web.StreamResponse:
        from ..metrics.process import sli_metrics

        return _text(sli_metrics(await backend.health()))

    async def stats(request: web.Request) -> web.StreamResponse:
        from ..metrics.stats_summary import summary

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
