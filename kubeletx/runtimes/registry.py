"""`RuntimeRegistry`: the runtimes of this node, in order, and which pod is on which.

It offers the eight operations of the multi-runtime design's RuntimeManager:

    GetAllRuntimeServices     all_runtime_services()      GetImageServiceByPod   image_service_by_pod(pod)
    GetAllImageServices       all_image_services()        RuntimeStatus          runtime_status(handle)
    GetRuntimeServiceByPod    runtime_by_pod(pod)         RuntimeVersion         runtime_version(handle)
    GetRuntimeServiceByPodID  runtime_by_pod_id(uid)      GetTypedVersion        typed_version(handle)

Each runtime runs in a task of its own, which is started again when it fails: one runtime never ends another.
Added runtimes, removals and cordons are lasting files (`DropIns`); bindings and tombstones are in the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from kubeletx.api import (
    Conflict,
    Endpoint,
    InvalidConfig,
    KubeletxError,
    NotFound,
    PodUid,
    Runtime,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeName,
    RuntimeVersion,
    SupportsImages,
    Unavailable,
    names,
)
from kubeletx.kube.core import Pod

from .bindings import Binding, Bindings
from .dropins import DropIns
from .endpoints import Item, check_name, make_endpoint
from .handle import RuntimeHandle, RuntimeListener
from .host import HostParts, RuntimeHost
from .kinds import Kind, KindTable
from .leftovers import clear_leftovers
from .limits import Limits
from .selection import Choice, Chosen, RuntimeView, Waits, choose
from .snapshots import PodSnapshot
from .tombstones import Tombstone, Tombstones
from .urls import normal
from .waiting import Backoff

log = structlog.get_logger(__name__)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator configured. `settings`: by kind, decoded. `class_map`: runtime class to handler."""

    endpoints: tuple[Endpoint, ...] = ()
    settings: dict[str, Any] = {}
    class_map: dict[str, str] = {}
    limits: Limits = Limits()


class RuntimeRegistry:
    """Made once by the agent. `run` owns every task; calls come from the same event loop."""

    def __init__(
        self,
        *,
        kinds: KindTable,
        plan: Plan,
        parts: HostParts,
        bindings: Bindings,
        tombstones: Tombstones,
    ) -> None:
        self._kinds = kinds
        self._plan = plan
        self._parts = parts
        self._bindings = bindings
        self._tombstones = tombstones
        self._dropins = DropIns(parts.root)
        self._listeners: list[RuntimeListener] = []
        self._handles: dict[RuntimeName, RuntimeHandle] = {}
        self._hosts: dict[RuntimeName, RuntimeHost] = {}
        self._bound: dict[PodUid, RuntimeHandle] = {}
        self._tasks: dict[RuntimeName, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None
        self._settling: asyncio.Task[None] | None = None

    # --- start ---

    def configure(self) -> tuple[InvalidConfig, ...]:
        """Make a handle for every endpoint of the plan and the drop-in files.

        Returns one error per drop-in file that cannot be used; those never stop the agent. Raises
        InvalidConfig when a plugin refuses an endpoint of the plan.
        """
        names_ = [endpoint.name for endpoint in self._plan.endpoints]
        loaded = self._dropins.load(self._kinds, names_)
        for endpoint in self._plan.endpoints:
            if endpoint.name in loaded.removed:
                log.info("Skipped removed runtime", runtime=endpoint.name, origin=endpoint.origin)
            else:
                self._make(endpoint, endpoint.name in loaded.cordoned)
        errors = list(loaded.errors)
        for endpoint in loaded.endpoints:
            try:
                self._make(endpoint, endpoint.name in loaded.cordoned)
            except InvalidConfig as error:
                errors.append(error)
        for binding in self._bindings.all.values():
            self._remember(binding)
        return tuple(errors)

    async def run(self) -> None:
        """Run every runtime until cancelled."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                for handle in self._handles.values():
                    self._launch(handle)
                self._settling = group.create_task(self._settle_bindings(), name="bindings-settle")
        finally:
            self._group = None
            self._tasks.clear()
            for host in self._hosts.values():
                host.close()

    def subscribe(self, listener: RuntimeListener) -> None:
        """Tell `listener` about every change from now on."""
        self._listeners.append(listener)

    # --- look-ups ---

    def handles(self) -> tuple[RuntimeHandle, ...]:
        """Every runtime, in the order listed: flags, configuration, drop-ins."""
        return tuple(self._handles.values())

    def get(self, name: str) -> RuntimeHandle:
        """The runtime. Raises NotFound naming the known ones."""
        try:
            return self._handles[RuntimeName(name)]
        except KeyError:
            known = ", ".join(self._handles) or "none"
            raise NotFound(f"no runtime {name!r} on this node; runtimes: {known}") from None

    def find(self, name: str) -> RuntimeHandle | None:
        """The runtime, or None."""
        return self._handles.get(RuntimeName(name))

    def default_for(self, workload_type: str) -> RuntimeHandle | None:
        """The first listed runtime of the type that is not cordoned, ready or not."""
        for handle in self._handles.values():
            if handle.workload_type == workload_type and not handle.state.cordoned:
                return handle
        return None

    def view(self) -> tuple[RuntimeView, ...]:
        """All runtimes as `choose` sees them."""
        return tuple(
            RuntimeView(
                name=handle.name,
                workload_type=handle.workload_type,
                ready=handle.state.ready,
                network_ready=handle.state.network_ready,
                cordoned=handle.state.cordoned,
                traits=handle.traits,
                handlers=handle.state.handlers,
            )
            for handle in self._handles.values()
        )

    def choose(self, pod: Pod) -> Choice:
        """The runtime for a pod that is not bound yet; it waits while an earlier life of it is cleared there.

        A pod that a runtime shows already (its binding was lost) belongs there.
        """
        for handle in self._handles.values():
            if self.find_orphan(handle.name, pod.uid) is not None:
                return Chosen(runtime=handle.name, why="it runs there already")
        choice = choose(pod, self.view(), self._plan.class_map)
        if isinstance(choice, Chosen) and (pod.uid, choice.runtime) in self._tombstones.all:
            return Waits(
                reason=names.RUNTIME_NOT_READY,
                message=f"runtime {choice.runtime!r} still holds an earlier life of this pod, which is stopped first",
                runtime=choice.runtime,
            )
        return choice

    # --- the eight operations ---

    def all_runtime_services(self) -> tuple[RuntimeHandle, ...]:
        """Every runtime, in the order listed."""
        return self.handles()

    def all_image_services(self) -> tuple[SupportsImages, ...]:
        """The image service of every runtime that keeps images, in the order listed."""
        found = (handle.capability(SupportsImages) for handle in self._handles.values())
        return tuple(service for service in found if service is not None)

    def runtime_by_pod(self, pod: Pod) -> RuntimeHandle:
        """The runtime the pod is bound to, else the one it would get now. Raises NotFound."""
        if (handle := self._bound.get(pod.uid)) is not None:
            return handle
        if self._bindings.find(pod.uid) is not None:
            return self.runtime_by_pod_id(pod.uid)
        choice = self.choose(pod)
        if isinstance(choice, Chosen):
            return self.get(choice.runtime)
        raise NotFound(f"no runtime for pod {pod.ref}: {choice.message}", reason=choice.reason)

    def runtime_by_pod_id(self, uid: PodUid) -> RuntimeHandle:
        """The runtime the pod is bound to: one dictionary look-up. Raises NotFound."""
        try:
            return self._bound[uid]
        except KeyError:
            binding = self._bindings.get(uid)
            raise NotFound(
                f"pod {uid} is bound to runtime {binding.runtime!r}, which is not configured"
            ) from None

    def image_service_by_pod(self, pod: Pod) -> SupportsImages:
        """The image service of the pod's runtime. Raises NotFound when it keeps no images."""
        handle = self.runtime_by_pod(pod)
        service = handle.capability(SupportsImages)
        if service is None:
            raise NotFound(f"runtime {handle.name!r} keeps no images")
        return service

    async def runtime_status(self, handle: RuntimeHandle) -> RuntimeHealth:
        """Ask the runtime how it is."""
        return await handle.health()

    async def runtime_version(self, handle: RuntimeHandle) -> str:
        """Ask for the version as one word, such as ``1.6.20``."""
        return (await handle.version()).version

    async def typed_version(self, handle: RuntimeHandle) -> RuntimeVersion:
        """Ask for name, version and API version."""
        return await handle.version()

    # --- bindings ---

    async def bind(self, binding: Binding) -> RuntimeHandle:
        """Write the pod's binding; on disk when this returns (rule 1)."""
        handle = self.get(binding.runtime)
        bound = await self._bindings.bind(msgspec.structs.replace(binding, kind=handle.kind))
        self._remember(bound)
        return handle

    async def unbind(self, uid: PodUid) -> None:
        """The pod has ended: its last write."""
        handle = self._bound.pop(uid, None)
        await self._bindings.unbind(uid)
        if handle is not None and (uid, handle.name) not in self._tombstones.all:
            handle.forget(uid)

    def restore(self, binding: Binding) -> bool:
        """Take in a binding found again from a runtime's labels; False if there is one already."""
        if not self._bindings.restore(binding):
            return False
        self._remember(binding)
        return True

    def bindings(self) -> Mapping[PodUid, Binding]:
        """Every binding; a live, read-only view."""
        return self._bindings.all

    def bound_uids(self, name: str) -> tuple[PodUid, ...]:
        """The pods bound to one runtime, oldest first."""
        return tuple(binding.uid for binding in self._bindings.of_runtime(name))

    def orphans(self) -> Mapping[PodUid, tuple[RuntimeHandle, PodSnapshot]]:
        """What carries our labels but has neither a binding nor a tombstone."""
        return {
            uid: (handle, snapshot)
            for handle in self._handles.values()
            for uid, snapshot in handle.pods().items()
            if self._is_orphan(handle.name, uid)
        }

    def find_orphan(self, name: str, uid: PodUid) -> tuple[RuntimeHandle, PodSnapshot] | None:
        """One of `orphans`, without a look at the others; None: the pod is not there, or is none."""
        handle = self.find(name)
        snapshot = handle.snapshot(uid) if handle is not None else None
        if handle is None or snapshot is None or not self._is_orphan(handle.name, uid):
            return None
        return handle, snapshot

    async def bury(self, uid: PodUid) -> None:
        """End a pod for all sources although its runtime does not answer: tombstone, then no binding."""
        binding = self._bindings.get(uid)
        handle = self._handles.get(binding.runtime)
        snapshot = handle.snapshot(uid) if handle is not None else None
        ids = tuple(s.id for s in snapshot.sandboxes) if snapshot is not None else ()
        await self._tombstones.add(Tombstone(uid=uid, runtime=binding.runtime, sandbox_ids=ids))
        await self.unbind(uid)

    # --- changes at run time ---

    async def add(
        self, *, name: str, workload_type: str, url: str, image_url: str | None = None
    ) -> RuntimeHandle:
        """Add a runtime, lasting. Raises InvalidConfig for what the flag would refuse too."""
        endpoint = make_endpoint(Item("runtime url", workload_type, name, url), self._kinds, "added")
        if image_url is not None:
            endpoint = msgspec.structs.replace(endpoint, image_url=normal(image_url, "image url"))
        return await self.add_endpoint(endpoint)

    async def add_endpoint(self, endpoint: Endpoint) -> RuntimeHandle:
        """Add a runtime, lasting, from an endpoint that `parse_endpoints` made."""
        name = endpoint.name
        check_name(name, "runtime name", taken=self._handles)
        handle = self._make(endpoint, cordoned=False)
        try:
            origin = self._make_lasting(endpoint)
        except Unavailable:
            self._drop(handle)
            raise
        handle.endpoint = msgspec.structs.replace(endpoint, origin=origin)
        for binding in self._bindings.of_runtime(name):
            self._remember(binding)
        self._launch(handle)
        log.info("Added runtime", runtime=name, kind=endpoint.kind, url=endpoint.url)
        self.runtime_changed(handle.name)
        return handle

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Remove a runtime, lasting. Raises Conflict while pods are bound to it, unless `force`d.

        With `force` the pods end here and each leaves a tombstone; what runs is stopped when a runtime of
        this name is added again.
        """
        handle = self.get(name)
        bound = self.bound_uids(name)
        if bound and not force:
            raise Conflict(
                f"{len(bound)} pods are on runtime {name!r}; drain it first (--drain), or end them by force (--force)"
            )
        self._dropins.remove(handle.endpoint)
        self._dropins.cordon(name, False)
        await self._stop(handle)
        for uid in bound:
            await self.bury(uid)
        self._drop(handle)
        log.info("Removed runtime", runtime=name)
        self.runtime_changed(handle.name)

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """Keep new pods off a runtime, lasting; or let them in again."""
        handle = self.get(name)
        self._dropins.cordon(name, cordoned)
        if handle.state.cordoned != cordoned:
            log.info("Cordoned runtime" if cordoned else "Uncordoned runtime", runtime=name)
            handle.cordon(cordoned)

    async def reload_dropins(self) -> tuple[InvalidConfig, ...]:
        """Follow the drop-in files: new ones are added; a vanished one removes its runtime once no pod is on it.

        Returns one error per file that cannot be used.
        """
        mine = {h.endpoint.origin: h for h in self._handles.values() if self._is_dropin(h.endpoint)}
        others = [h.name for h in self._handles.values() if h.endpoint.origin not in mine]
        loaded = self._dropins.load(self._kinds, others)
        wanted = {endpoint.origin: endpoint for endpoint in loaded.endpoints}
        errors = list(loaded.errors)
        broken = {error.obj for error in loaded.errors} | {error.field.partition(":")[0] for error in errors}
        for origin, handle in mine.items():
            if origin in broken or _equal(wanted.get(origin), handle.endpoint):
                continue
            if self.bound_uids(handle.name):
                errors.append(_still_used(origin, handle.name))
                wanted.pop(origin, None)
                continue
            await self._stop(handle)
            self._drop(handle)
            self.runtime_changed(handle.name)
        for endpoint in wanted.values():
            if endpoint.name in self._handles:
                continue
            try:
                handle = self._make(endpoint, endpoint.name in loaded.cordoned)
            except InvalidConfig as error:
                errors.append(error)
                continue
            self._launch(handle)
            log.info("Added runtime", runtime=endpoint.name, kind=endpoint.kind, origin=endpoint.origin)
            self.runtime_changed(handle.name)
        for handle in self._handles.values():
            handle.cordon(handle.name in loaded.cordoned)
        return tuple(errors)

    # --- RuntimeListener: handles report here ---

    def runtime_changed(self, name: RuntimeName) -> None:
        """Pass on to every subscriber."""
        for listener in self._listeners:
            listener.runtime_changed(name)

    def pod_changed(self, name: RuntimeName, uid: PodUid, event: RuntimeEvent | None) -> None:
        """Pass on to every subscriber, except leftovers, which are nobody's business but ours."""
        if (uid, name) in self._tombstones.all:
            return
        if event is None and self._is_second_life(name, uid):
            self._end_second_life(name, uid)
            return
        for listener in self._listeners:
            listener.pod_changed(name, uid, event)

    # --- private ---

    def _is_second_life(self, name: RuntimeName, uid: PodUid) -> bool:
        """Whether the pod is bound to another runtime than the one that shows it.

        It was bound anew while this runtime was away and the database that knew of it was lost.
        """
        binding, handle = self._bindings.find(uid), self._handles.get(name)
        return (
            binding is not None
            and binding.runtime != name
            and handle is not None
            and handle.snapshot(uid) is not None
        )

    def _end_second_life(self, name: RuntimeName, uid: PodUid) -> None:
        snapshot = self._handles[name].snapshot(uid)
        if self._group is None or snapshot is None:
            return
        bound = self._bindings.get(uid).runtime
        log.warning(
            "Found a pod on a second runtime; ending it there", pod_uid=uid, runtime=name, bound=bound
        )
        stone = Tombstone(uid=uid, runtime=name, sandbox_ids=tuple(s.id for s in snapshot.sandboxes))
        self._group.create_task(self._add_stone(stone), name=f"second-life-{uid}")

    async def _add_stone(self, stone: Tombstone) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            try:
                return await self._tombstones.add(stone)
            except KubeletxError as error:
                log.debug("Failed to write a tombstone", pod_uid=stone.uid, err=str(error))
                await self._parts.clock.sleep(backoff.next())

    def _make(self, endpoint: Endpoint, cordoned: bool) -> RuntimeHandle:
        kind = self._kinds.get(endpoint.kind)
        host = RuntimeHost(endpoint.name, self._parts)
        try:
            runtime = _make_runtime(kind, endpoint, self._plan.settings.get(kind.name), host)
        except InvalidConfig:
            raise
        except Exception as error:
            raise InvalidConfig(
                obj=endpoint.origin,
                field=f"runtime {endpoint.name}",
                problem=f"plugin kind {kind.name!r} failed: {type(error).__name__}: {error}",
                fix="correct the URL or report the plugin's bug",
            ) from error
        handle = RuntimeHandle(
            endpoint=endpoint,
            runtime=runtime,
            agent_id=self._parts.agent_id,
            clock=self._parts.clock,
            events=self._parts.events,
            listener=self,
            limits=self._plan.limits,
        )
        handle.cordon(cordoned)
        self._handles[endpoint.name] = handle
        self._hosts[endpoint.name] = host
        return handle

    def _make_lasting(self, endpoint: Endpoint) -> str:
        """Where it stands from now on: its own file, or the flag that it was removed from before."""
        for planned in self._plan.endpoints:
            if msgspec.structs.replace(planned, origin=endpoint.origin) == endpoint:
                self._dropins.unmask(endpoint.name)
                return planned.origin
        return str(self._dropins.add(endpoint))

    def _launch(self, handle: RuntimeHandle) -> None:
        if self._group is not None:
            self._tasks[handle.name] = self._group.create_task(
                self._supervise(handle), name=f"runtime-{handle.name}"
            )

    async def _supervise(self, handle: RuntimeHandle) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(handle.run(), name=f"runtime-{handle.name}-handle")
                    group.create_task(self._clear_leftovers(handle), name=f"runtime-{handle.name}-leftovers")
            except* Exception as errors:
                delay = backoff.next()
                log.exception(
                    "Failed to run runtime; starting it again", runtime=handle.name, err=str(errors)
                )
                await self._parts.clock.sleep(delay)

    async def _clear_leftovers(self, handle: RuntimeHandle) -> None:
        await handle.wait_listed()
        await clear_leftovers(
            handle,
            self._tombstones,
            self._parts.clock,
            on_cleared=lambda: self.runtime_changed(handle.name),
        )

    async def _settle_bindings(self) -> None:
        while True:
            await self._parts.clock.sleep(30.0)
            try:
                await self._bindings.settle()
            except KubeletxError as error:
                log.debug("Failed to settle bindings", err=str(error))
            for binding in self._bindings.all.values():  # those read late
                if binding.uid not in self._bound:
                    self._remember(binding)

    async def _stop(self, handle: RuntimeHandle) -> None:
        task = self._tasks.pop(handle.name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _drop(self, handle: RuntimeHandle) -> None:
        self._handles.pop(handle.name, None)
        host = self._hosts.pop(handle.name, None)
        if host is not None:
            host.close()
        for uid in [uid for uid, bound in self._bound.items() if bound is handle]:
            del self._bound[uid]

    def _remember(self, binding: Binding) -> None:
        handle = self._handles.get(binding.runtime)
        if handle is not None:
            self._bound[binding.uid] = handle

    def _is_orphan(self, name: RuntimeName, uid: PodUid) -> bool:
        return self._bindings.find(uid) is None and (uid, name) not in self._tombstones.all

    def _is_dropin(self, endpoint: Endpoint) -> bool:
        return endpoint.origin.startswith(f"{self._dropins.runtimes}/")


def _make_runtime(kind: Kind, endpoint: Endpoint, settings: Any, host: RuntimeHost) -> Runtime:
    if endpoint.isolation == "none":
        return kind.factory(endpoint, settings, host)
    from .isolation import IsolatedRuntime

    return IsolatedRuntime(kind.factory, endpoint, settings, host)


def _equal(wanted: Endpoint | None, present: Endpoint) -> bool:
    return wanted is not None and wanted == present


def _still_used(origin: str, name: str) -> InvalidConfig:
    return InvalidConfig(
        obj=origin,
        field="drop-in",
        problem=f"changed or gone, but pods are on runtime {name!r}",
        fix="drain the runtime, then remove it",
    )
