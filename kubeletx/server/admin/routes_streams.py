"""Routes of exec, attach and port-forward. Module `streams`, which the first request imports, serves them."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from ..backend import PodVerbs


def routes(backend: PodVerbs) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes of exec, attach and port-forward."""

    async def exec_(request: web.Request) -> web.StreamResponse:
        from .streams import serve_exec

        return await serve_exec(request, backend)

    async def attach(request: web.Request) -> web.StreamResponse:
        from .streams import serve_attach

        return await serve_attach(request, backend)

    async def port_forward(request: web.Request) -> web.StreamResponse:
        from .streams import serve_port_forward

        return await serve_port_forward(request, backend)

    return (
        web.get("/v1/pods/{namespace}/{name}/exec", exec_),
        web.get("/v1/pods/{namespace}/{name}/attach", attach),
        web.get("/v1/pods/{namespace}/{name}/portforward", port_forward),
    )
