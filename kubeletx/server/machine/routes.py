"""Routes of virtual machines: power, reboot, size, snapshots, interfaces, screenshot, definition.

All are below ``/v1/pods/NAMESPACE/NAME/vm``. The console has no route of its own: it is the pod's ``attach``.
"""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web

from ..admin.routes_pods import target_of
from ..admin.tasks import Tasks
from ..http import json_response, query_seconds, read_json
from .verbs import MachineVerbs
from .views import MachineReboot, MachineSize, NicRequest, SnapshotRequest

_BASE = "/v1/pods/{namespace}/{name}/vm"


def routes(backend: MachineVerbs, tasks: Tasks) -> Iterable[web.RouteDef]:
    """Return the admin socket's routes of virtual machines.

    `tasks`: completes changes even if the client disconnects.
    """

    async def show(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.find_machine(target_of(request)))

    async def power(request: web.Request) -> web.StreamResponse:
        target, verb = target_of(request), request.match_info["verb"]
        seconds = query_seconds(request, "timeoutSeconds", 60.0)
        change = backend.machine_power(target, verb, seconds)
        return json_response(await tasks.complete(change, f"vm {verb} {target.ref}"))

    async def reboot(request: web.Request) -> web.StreamResponse:
        target, wanted = target_of(request), await read_json(request, MachineReboot)
        change = backend.reboot_machine(target, wanted.delay_seconds)
        return json_response(await tasks.complete(change, f"vm reboot {target.ref}"))

    async def cancel(request: web.Request) -> web.StreamResponse:
        return json_response(await backend.cancel_reboot(target_of(request)))

    async def resize(request: web.Request) -> web.StreamResponse:
        target, wanted = target_of(request), await read_json(request, MachineSize)
        change = backend.resize_machine(target, wanted)
        return json_response(await tasks.complete(change, f"vm resize {target.ref}"))

    async def snapshots(request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.list_snapshots(target_of(request))})

    async def create(request: web.Request) -> web.StreamResponse:
        target, wanted = target_of(request), await read_json(request, SnapshotRequest)
        change = backend.create_snapshot(target, wanted.name, wanted.memory)
        return json_response(await tasks.complete(change, f"vm snapshot create {target.ref}"), 201)

    async def restore(request: web.Request) -> web.StreamResponse:
        target = target_of(request)
        change = backend.restore_snapshot(target, request.match_info["item"])
        return json_response(await tasks.complete(change, f"vm snapshot restore {target.ref}"))

    async def forget(request: web.Request) -> web.StreamResponse:
        target = target_of(request)
        change = backend.delete_snapshot(target, request.match_info["item"])
        return json_response(await tasks.complete(change, f"vm snapshot delete {target.ref}"))

    async def nics(request: web.Request) -> web.StreamResponse:
        return json_response({"items": await backend.list_nics(target_of(request))})

    async def attach(request: web.Request) -> web.StreamResponse:
        target, wanted = target_of(request), await read_json(request, NicRequest)
        change = backend.attach_nic(target, wanted)
        return json_response(await tasks.complete(change, f"vm nic attach {target.ref}"))

    async def detach(request: web.Request) -> web.StreamResponse:
        target = target_of(request)
        change = backend.detach_nic(target, request.match_info["item"])
        return json_response(await tasks.complete(change, f"vm nic detach {target.ref}"))

    async def screenshot(request: web.Request) -> web.StreamResponse:
        picture = await backend.machine_screenshot(target_of(request))
        return web.Response(body=picture, content_type="image/png")

    async def definition(request: web.Request) -> web.StreamResponse:
        return web.Response(text=await backend.machine_definition(target_of(request)))

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
