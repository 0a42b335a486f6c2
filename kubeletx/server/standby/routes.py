"""Route of standby of pods: ``POST /v1/pods/NAMESPACE/NAME/standby/VERB``, VERB: standby, hibernate or activate."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from ..admin.routes_pods import target_of
from ..admin.tasks import Tasks
from ..http import json_response, query_seconds
from .verbs import StandbyVerbs


def routes(backend: StandbyVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's route of standby. `tasks`: completes changes even if the client disconnects."""

    async def change(request: web.Request) -> web.StreamResponse:
        target, verb = target_of(request), request.match_info["verb"]
        work = backend.set_standby(target, verb, query_seconds(request, "timeoutSeconds", 60.0))
        return json_response(await tasks.complete(work, f"pod {verb} {target.ref}"))

    return (web.post("/v1/pods/{namespace}/{name}/standby/{verb}", change),)
