"""HTTP API of a cluster of simulated cores; bodies and answers are JSON. Objects go to the core that owns the node.

    POST /pods PodRequest             DELETE /pods/NS/NAME     POST /pods/NS/NAME/hibernate, /activate
    POST /sessions SessionRequest     DELETE /sessions/NS/NAME     ?wait=Available&seconds=10 waits for a status
    GET /nodes /pods /sessions        GET /log                 POST /faults FaultRequest     POST /owners OwnerRequest

Errors are ``{"error": TEXT}`` with status 400, 404, 409 or 504.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import msgspec
from aiohttp import web

from kubeletx.api.errors import AlreadyExists, Conflict, FieldError, KubeletxError, NotFound, TimedOut

from .cluster import Cluster
from .core import FornaxCore
from .faults import Fault
from .objects import PodRequest, SessionRequest
from .state import PodView, SessionView

_STATUS = {NotFound: 404, AlreadyExists: 409, Conflict: 409, TimedOut: 504}


class FaultRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /faults. `core`: empty: the first one. `line`: hold or release all connections, or cut them.

    `restart_seconds`: the core is away for that time, and forgets everything.
    """

    core: str = ""
    faults: list[Fault] = []
    line: Literal["", "hold", "release", "cut"] = ""
    restart_seconds: float | None = None


class OwnerRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Body of POST /owners: the arguments of `Cluster.move`."""

    node: str
    core: str
    inside_command: bool = False


_POD = (
    *("id", "node", "application", "phase", "state", "message", "ip", "is_deleting"),
    *("requested_at", "running_at"),
)
_SESSION = (
    *("id", "pod", "node", "status", "message", "clients", "endpoints"),
    *("requested_at", "available_at", "closed_at"),
)


def _json(view: PodView | SessionView) -> dict[str, Any]:
    names = _POD if isinstance(view, PodView) else _SESSION
    return {name: getattr(view, name) for name in names}


class Api:
    """Handlers of the API."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def application(self) -> web.Application:
        app = web.Application(middlewares=[_errors], client_max_size=128 << 20)
        app.add_routes(
            [
                web.post("/pods", self._create_pod),
                web.delete("/pods/{namespace}/{name}", self._pod_verb),
                web.post("/pods/{namespace}/{name}/{verb:hibernate|activate}", self._pod_verb),
                web.post("/sessions", self._open_session),
                web.delete("/sessions/{namespace}/{name}", self._close_session),
                web.get("/{kind:nodes|pods|sessions}", self._list),
                web.get("/log", self._log),
                web.post("/faults", self._add_faults),
                web.post("/owners", self._move),
            ]
        )
        return app

    async def _create_pod(self, request: web.Request) -> web.Response:
        wanted = await _body(request, PodRequest)
        core = self._cluster.owner(wanted.node) if wanted.node else self._with_nodes()
        return web.json_response(_json(core.create_pod(wanted)), status=201)

    async def _pod_verb(self, request: web.Request) -> web.Response:
        id = _id(request)
        core = self._of(lambda core: id in core.state.pods)
        verbs = {"hibernate": core.hibernate_pod, "activate": core.activate_pod, "": core.terminate_pod}
        return web.json_response(_json(verbs[request.match_info.get("verb", "")](id)), status=202)

    async def _open_session(self, request: web.Request) -> web.Response:
        wanted = await _body(request, SessionRequest)
        pod = wanted.pod
        core = self._with_nodes() if pod is None else self._of(lambda core: pod in core.state.pods)
        return await _answer(request, core, core.open_session(wanted).id, 201)

    async def _close_session(self, request: web.Request) -> web.Response:
        id = _id(request)
        core = self._of(lambda core: id in core.state.sessions)
        return await _answer(request, core, core.close_session(id).id, 202)

    async def _list(self, request: web.Request) -> web.Response:
        kind = request.match_info["kind"]
        cores = self._cluster.cores.items()
        if kind == "nodes":
            return web.json_response({name: _nodes(core) for name, core in cores})
        return web.json_response(
            {name: [_json(one) for one in getattr(core.state, kind).values()] for name, core in cores}
        )

    async def _log(self, request: web.Request) -> web.Response:
        answer = {}
        for name, core in self._cluster.cores.items():
            history = core.history
            last = min(int(request.query.get("last", "200")), len(history.seen))
            answer[name] = {
                "address": core.address,
                "counts": history.counts,
                "nodes": history.nodes,
                "gaps": history.gaps,
                "violations": history.violations,
                "seen": [
                    {field: getattr(one, field) for field in one.__struct_fields__ if field != "message"}
                    for one in list(history.seen)[len(history.seen) - last :]
                ],
            }
        return web.Response(body=msgspec.json.encode(answer), content_type="application/json")

    async def _add_faults(self, request: web.Request) -> web.Response:
        wanted = await _body(request, FaultRequest)
        core = self._cluster.core(wanted.core or next(iter(self._cluster.cores)))
        for fault in wanted.faults:
            core.faults.add(fault)
        match wanted.line:
            case "hold":
                core.line.hold()
            case "release":
                core.line.release()
            case "cut":
                core.line.cut_after(0)
        if wanted.restart_seconds is not None:
            await core.restart(wanted.restart_seconds)
        return web.json_response({"pending": core.faults.pending})

    async def _move(self, request: web.Request) -> web.Response:
        wanted = await _body(request, OwnerRequest)
        self._cluster.move(wanted.node, wanted.core, inside_command=wanted.inside_command)
        return web.json_response({})

    def _with_nodes(self) -> FornaxCore:
        return self._of(lambda core: core.ready_nodes(), "no core has a ready node")

    def _of(self, holds: Callable[[FornaxCore], object], problem: str = "") -> FornaxCore:
        """Return the core for which `holds` is true, an owner of nodes before others. Raises NotFound, Conflict."""
        found = [core for core in self._cluster.cores.values() if holds(core)]
        if not found and problem:
            raise Conflict(problem)
        if not found:
            raise NotFound("no core has this object")
        return next((core for core in found if core.ready_nodes()), found[0])


def _nodes(core: FornaxCore) -> list[dict[str, Any]]:
    return [
        {
            "id": one.identifier,
            "ready": one.is_ready,
            "connected": core.is_connected(one.identifier),
            "owner": core.owns(one.identifier),
            "revision": one.revision,
        }
        for one in core.state.nodes.values()
    ]


def _id(request: web.Request) -> str:
    return f"{request.match_info['namespace']}/{request.match_info['name']}"


async def _body(request: web.Request, type: Any) -> Any:
    return msgspec.json.decode(await request.read(), type=type)


async def _answer(request: web.Request, core: FornaxCore, id: str, status: int) -> web.Response:
    """Answer with a session; with ``?wait=STATUS`` once it has this status, or has ended."""
    wanted = request.query.get("wait")
    if wanted is not None:
        await core.wait_for(
            lambda: core.session(id).status == wanted or not core.session(id).is_live,
            float(request.query.get("seconds", "60")),
            f"{wanted} of {id}",
        )
    return web.json_response(_json(core.session(id)), status=status)


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except (KubeletxError, msgspec.ValidationError, msgspec.DecodeError) as error:
        status = next((code for kind, code in _STATUS.items() if isinstance(error, kind)), 400)
        if not isinstance(error, FieldError | msgspec.MsgspecError) and status == 400:
            raise
        return web.json_response({"error": str(error)}, status=status)
