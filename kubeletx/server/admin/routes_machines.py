"""Routes of virtual machines, below ``/v1/pods/NAMESPACE/NAME/vm``: power, reboot, size, snapshots, interfaces, screen.

The console has no route of its own: it is the pod's ``attach``.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from typing import Any

from aiohttp import web

from ..backend import MachineVerbs
from ..http import Handler, json_response, query_seconds, read_json
from ..views import MachineReboot, MachineSize, NicRequest, PodTarget, SnapshotRequest
from .routes_pods import target_of
from .tasks import Tasks

_BASE = "/v1/pods/{namespace}/{name}/vm"

_Change = Callable[[PodTarget, str, Any], Coroutine[Any, Any, object]]
"""Begins a change of the pod's machine. The text is the snapshot or interface in the path, then comes the body."""


def routes(backend: MachineVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes of virtual machines. `tasks` runs changes to their end if the client disconnects."""

    def changing(verb: str, begin: _Change, body: type[Any] | None = None, code: int = 200) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            target, item = target_of(request), request.match_info.get("item", "")
            wanted = await read_json(request, body) if body is not None else None
            change = begin(target, item, wanted)
            return json_response(await tasks.complete(change, f"vm {verb} {target.ref}"), code)

        return handle

    async def show(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.find_machine(target_of(request)))

    async def power(request: web.Request) -> web.StreamResponse:
        target, verb = target_of(request), request.match_info["verb"]
        seconds = query_seconds(request, "timeoutSeconds", 60.0)
        change = backend.machine_power(target, verb, seconds)
        return json_response(await tasks.complete(change, f"vm {verb} {target.ref}"))

    async def cancel(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.cancel_reboot(target_of(request)))

    async def snapshots(request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.list_snapshots(target_of(request))})

    async def nics(request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.list_nics(target_of(request))})

    async def screenshot(request: web.Request) -> web.StreamResponse:
        picture = await backend.machine_screenshot(target_of(request))
        return web.Response(body=picture, content_type="image/png")

    async def definition(request: web.Request) -> web.StreamResponse:
        return web.Response(text=await backend.machine_definition(target_of(request)))

    reboot = changing("reboot", lambda pod, _, b: backend.reboot_machine(pod, b.delay_seconds), MachineReboot)
    resize = changing("resize", lambda pod, _, size: backend.resize_machine(pod, size), MachineSize)
    create = changing(
        "snapshot create",
        lambda pod, _, b: backend.create_snapshot(pod, b.name, b.memory),
        SnapshotRequest,
        201,
    )
    restore = changing("snapshot restore", lambda pod, name, _: backend.restore_snapshot(pod, name))
    forget = changing("snapshot delete", lambda pod, name, _: backend.delete_snapshot(pod, name))
    attach = changing("nic attach", lambda pod, _, nic: backend.attach_nic(pod, nic), NicRequest)
    detach = changing("nic detach", lambda pod, name, _: backend.detach_nic(pod, name))
    return (
        web.get(_BASE, show),
        web.post(f"{_BASE}/power/{{verb}}", power),
        web.post(f"{_BASE}/reboot", reboot),
        web.delete(f"{_BASE}/reboot", cancel),
        web.post(f"{_BASE}/resize", resize),
        web.get(f"{_BASE}/snapshots", snapshots),
        web.post(f"{_BASE}/snapshots", create),
        web.post(f"{_BASE}/snapshots/{{item}}/restore", restore),
        web.delete(f"{_BASE}/snapshots/{{item}}", forget),
        web.get(f"{_BASE}/nics", nics),
        web.post(f"{_BASE}/nics", attach),
        web.delete(f"{_BASE}/nics/{{item}}", detach),
        web.get(f"{_BASE}/screenshot", screenshot),
        web.get(f"{_BASE}/definition", definition),
    )
