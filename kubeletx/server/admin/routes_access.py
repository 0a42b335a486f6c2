"""Routes about access to the kubelet's API, for programs of this node that serve its users, such as kubeletx-web."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from aiohttp import web

from kubeletx.api import NotFound

from ..http import json_response, read_json

if TYPE_CHECKING:
    from ..access.remote import KubeletAccess


def routes(access: KubeletAccess | None) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes at ``/v1/access``. `access` None: the agent does not serve the kubelet's API."""

    def known() -> KubeletAccess:
        if access is None:
            raise NotFound(
                "the agent does not serve the kubelet's API, which decides who has access; start it with --kubeconfig"
            )
        return access

    async def files(_request: web.Request) -> web.StreamResponse:
        return json_response(known().files())

    async def decide(request: web.Request) -> web.StreamResponse:
        decides = known().decide
        from ..access.remote import AccessRequest

        return json_response(await decides(await read_json(request, AccessRequest)))

    return (web.get("/v1/access", files), web.post("/v1/access", decide))
