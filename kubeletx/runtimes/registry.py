"""`RuntimeRegistry`: the runtimes of this node, and the runtime that each pod is assigned to.

It offers the eight operations of the multi-runtime design's RuntimeManager:

    GetAllRuntimeServices     all_runtime_services()      GetImageServiceByPod   image_service_by_pod(pod)
    GetAllImageServices       all_image_services()        RuntimeStatus          runtime_status(handle)
    GetRuntimeServiceByPod    runtime_by_pod(pod)         RuntimeVersion         runtime_version(handle)
    GetRuntimeServiceByPodID  runtime_by_pod_id(uid)      GetTypedVersion        typed_version(handle)

`Fleet` makes and runs the runtimes. A binding stores the runtime of a pod (see `binding.bindings`). A tombstone orders
the removal of a pod that was ended by force (see `binding.tombstones`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec
import structlog

from kubeletx.api import (
    Conflict,
    InvalidConfig,
    KubeletxError,
    NotFound,
    ObjectRef,
    PodUid,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeName,
    RuntimeVersion,
    SupportsImages,
    names,
)
from kubeletx.api.backoff import Backoff
from kubeletx.kube.types.core import Pod

from .binding.bindings import Binding, Bindings
from .binding.features import missing
from .binding.selection import (
    Choice,
    Chosen,
    Lacking,
    Requested,
    RuntimeCandidate,
    WaitForRuntime,
    choose_for,
    requested_runtime,
)
from .binding.tombstones import Tombstone, Tombstones, clear_leftovers
from .endpoints.grammar import EndpointItem, make_endpoint
from .endpoints.kinds import KindTable
from .endpoints.urls import normal
from .fleet import Fleet, FleetConfig
from .handles.handle import RuntimeHandle, RuntimeListener
from .handles.snapshots import PodSnapshot
from .host.host import HostParts

log = structlog.get_logger(__name__)


class RuntimeRegistry:
    """Manages the node's runtimes, and the binding of each pod to one of them.

    The agent makes one object. `run` owns every task; all methods must be called on the same event loop. `fleet`: the
    same runtimes without their pods, for what concerns only the runtimes.
    """

    def __init__(
        self,
        *,
        kinds: KindTable,
        plan: FleetConfig,
        parts: HostParts,
        bindings: Bindings,
        tombstones: Tombstones,
    ) -> None:
        self._kinds = kinds
        self._class_map = plan.class_map
        self._clock = parts.clock
        self._events = parts.events
        self._bindings = bindings
        self._tombstones = tombstones
        self._listeners: list[RuntimeListener] = []
        self._group: asyncio.TaskGroup | None = None
        self.fleet = Fleet(
            kinds=kinds,
            plan=plan,
            parts=parts,
            listener=self,
            is_used=self._is_used,
            bound_kinds=lambda name: {binding.kind for binding in bindings.of_runtime(name)},
            beside=self._clear_leftovers,
        )
        self._handles = self.fleet.handles
        self.cgroup_driver = self.fleet.cgroup_driver
        """Chooses the driver of pods' cgroups from what the runtimes report; see `NodeCgroupDriver`."""

    # --- start ---

    def configure(self) -> tuple[InvalidConfig, ...]:
        """Make a `RuntimeHandle` for every runtime of the flags, the configuration file and the drop-in files.

        Returns one error for each unusable drop-in file; such a file does not stop the agent. A runtime that its plugin
        could not make is not ready, with the reason.
        """
        return self.fleet.configure()

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                self.fleet.begin(group)
                group.create_task(self._settle_bindings(), name="bindings-settle")
        finally:
            self._group = None
            self.fleet.end()

    def subscribe(self, listener: RuntimeListener) -> None:
        """Call the methods of `listener` on every later change of a runtime or of a pod on a runtime."""
        self._listeners.append(listener)

    # --- look-ups ---

    def handles(self) -> tuple[RuntimeHandle, ...]:
        """Return every runtime, in the configured order: flags, configuration file, drop-in files."""
        return tuple(self._handles.values())

    def get(self, name: str) -> RuntimeHandle:
        """Return the runtime named `name`. Raises NotFound, which lists the known names."""
        try:
            return self._handles[RuntimeName(name)]
        except KeyError:
            known = ", ".join(self._handles) or "none"
            raise NotFound(f"no runtime {name!r} on this node; runtimes: {known}") from None

    def find(self, name: str) -> RuntimeHandle | None:
        """Return the runtime named `name`; None if there is none."""
        return self._handles.get(RuntimeName(name))

    def default_for(self, workload_type: str) -> RuntimeHandle | None:
        """Return the default runtime of a workload type: the first one that is not cordoned, whether ready or not.

        None if there is none.
        """
        for handle in self._handles.values():
            if handle.workload_type == workload_type and not handle.state.cordoned:
                return handle
        return None

    def view(self) -> tuple[RuntimeCandidate, ...]:
        """Return the data about all runtimes that `choose_for` uses, in the configured order."""
        return tuple(
            RuntimeCandidate(
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
        """Choose the runtime for a pod that is not assigned to one yet; see `choose_for`."""
        request = requested_runtime(pod, self._class_map, self._handles)
        return self.choose_for(request, pod.uid, lambda traits, handler: missing(pod, traits, handler))

    def choose_for(self, request: Requested, uid: PodUid, lacking: Lacking) -> Choice:
        """Choose the runtime for a request of the pod `uid`. `lacking`: returns what the pod needs and a runtime lacks.

        If the pod exists on a runtime although its binding was lost, that runtime is chosen. If the pod was
        ended by force on the chosen runtime before, it waits until everything from that time is removed there.
        """
        for handle in self._handles.values():
            if self.find_orphan(handle.name, uid) is not None:
                return Chosen(runtime=handle.name, why="it runs there already")
        choice = choose_for(request, self.view(), lacking)
        if isinstance(choice, Chosen) and (uid, choice.runtime) in self._tombstones.all:
            return WaitForRuntime(
                reason=names.RUNTIME_NOT_READY,
                message=f"runtime {choice.runtime!r} still holds an earlier life of this pod, which is stopped first",
                runtime=choice.runtime,
            )
        return choice

    # --- the eight operations ---

    def all_runtime_services(self) -> tuple[RuntimeHandle, ...]:
        """Return every runtime, in the configured order."""
        return self.handles()

    def all_image_services(self) -> tuple[SupportsImages, ...]:
        """Return the image service of every runtime that keeps images, in the configured order."""
        services = (handle.capability(SupportsImages) for handle in self._handles.values())
        return tuple(service for service in services if service is not None)

    def runtime_by_pod(self, pod: Pod) -> RuntimeHandle:
        """Return the runtime that the pod is assigned to, or the one that would be chosen for it now.

        Raises NotFound if no runtime can be chosen.
        """
        if self._bindings.find(pod.uid) is not None:
            return self.runtime_by_pod_id(pod.uid)
        choice = self.choose(pod)
        if isinstance(choice, Chosen):
            return self.get(choice.runtime)
        raise NotFound(f"no runtime for pod {pod.ref}: {choice.message}", reason=choice.reason)

    def runtime_by_pod_id(self, uid: PodUid) -> RuntimeHandle:
        """Return the runtime that the pod is assigned to. Raises NotFound if there is none. Costs two look-ups."""
        binding = self._bindings.get(uid)
        try:
            return self._handles[binding.runtime]
        except KeyError:
            raise NotFound(
                f"pod {uid} is bound to runtime {binding.runtime!r}, which is not configured"
            ) from None

    def image_service_by_pod(self, pod: Pod) -> SupportsImages:
        """Return the image service of the pod's runtime. Raises NotFound if the runtime has no image store."""
        handle = self.runtime_by_pod(pod)
        service = handle.capability(SupportsImages)
        if service is None:
            raise NotFound(f"runtime {handle.name!r} has no image store")
        return service

    async def runtime_status(self, handle: RuntimeHandle) -> RuntimeHealth:
        """Query the runtime's health."""
        return await handle.health()

    async def runtime_version(self, handle: RuntimeHandle) -> str:
        """Query the runtime's version as one word, such as ``1.6.20``."""
        return (await handle.version()).version

    async def typed_version(self, handle: RuntimeHandle) -> RuntimeVersion:
        """Query the runtime's name, version and API version."""
        return await handle.version()

    # --- bindings ---

    async def bind(self, binding: Binding) -> RuntimeHandle:
        """Write the pod's binding to disk and return its runtime (rule 1 of docs/architecture.md).

        Raises NotFound if the runtime does not exist or is being removed, and the errors of `Bindings.bind`.
        """
        handle = self.get(binding.runtime)
        if self.fleet.is_leaving(handle.name):
            raise NotFound(f"runtime {handle.name!r} is being removed", reason=names.RUNTIME_NOT_FOUND)
        await self._bindings.bind(msgspec.structs.replace(binding, kind=handle.kind))
        return handle

    async def unbind(self, uid: PodUid) -> None:
        """Delete the pod's binding, as the last step of its end, and drop the runtime's snapshot of the pod."""
        binding = self._bindings.find(uid)
        handle = self._handles.get(binding.runtime) if binding is not None else None
        await self._bindings.unbind(uid)
        if handle is not None and (uid, handle.name) not in self._tombstones.all:
            handle.forget(uid)

    def restore(self, binding: Binding) -> bool:
        """Add a binding that was recovered from labels on a runtime; return False if the pod has one already."""
        return self._bindings.restore(binding)

    def bindings(self) -> Mapping[PodUid, Binding]:
        """Return every binding by pod UID; a live, read-only view."""
        return self._bindings.all

    def bound_uids(self, name: str) -> tuple[PodUid, ...]:
        """Return the UIDs of the pods that are assigned to one runtime, in the order of `Bindings.of_runtime`."""
        return tuple(binding.uid for binding in self._bindings.of_runtime(name))

    def orphans(self) -> Mapping[PodUid, tuple[RuntimeHandle, PodSnapshot]]:
        """Return the pods that exist on a runtime with this agent's labels, but have neither binding nor tombstone.

        Each comes with its runtime and its snapshot, by pod UID.
        """
        return {
            uid: (handle, snapshot)
            for handle in self._handles.values()
            for uid, snapshot in handle.pods().items()
            if self._is_orphan(handle.name, uid)
        }

    def find_orphan(self, name: str, uid: PodUid) -> tuple[RuntimeHandle, PodSnapshot] | None:
        """Return the entry of `orphans` for one pod on the runtime `name`; None if there is none."""
        handle = self.find(name)
        snapshot = handle.snapshot(uid) if handle is not None else None
        if handle is None or snapshot is None or not self._is_orphan(handle.name, uid):
            return None
        return handle, snapshot

    async def abandon_binding(self, uid: PodUid) -> None:
        """Give up a pod whose runtime does not answer: write a tombstone, then delete the binding.

        The tombstone makes the agent remove the pod when the runtime answers again. Raises NotFound if the pod is not
        assigned to a runtime.
        """
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
        """Add a runtime and save it, so that it exists after a restart of the agent too.

        Arguments as in the endpoint flag. `image_url`: URL of a separate image endpoint; None if `url` also serves
        images. Raises InvalidConfig.
        """
        endpoint = make_endpoint(EndpointItem("runtime url", workload_type, name, url), self._kinds, "added")
        if image_url is not None:
            endpoint = msgspec.structs.replace(endpoint, image_url=normal(image_url, "image url"))
        return self.fleet.add(endpoint)

    async def remove(self, name: str, *, force: bool = False) -> None:
        """Remove a runtime; it stays removed after a restart of the agent.

        Raises Conflict if pods are assigned to it, unless `force` is set. With `force` the agent gives up these pods
        and writes a tombstone for each; what is left of them is removed if a runtime of this name is added again.
        """
        handle = self.get(name)
        with self.fleet.leaving(handle):
            await self._bindings.wait_written(name)
            bound = self.bound_uids(name)
            if bound and not force:
                pods = "1 pod is" if len(bound) == 1 else f"{len(bound)} pods are"
                raise Conflict(
                    f"{pods} on runtime {name!r}; drain it first (--drain), or end by force (--force)"
                )

            async def abandon_all() -> None:
                for uid in bound:
                    await self.abandon_binding(uid)

            await self.fleet.remove(handle, abandon_all)

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """Cordon or uncordon a runtime; this holds after a restart of the agent too."""
        self.fleet.cordon(self.get(name), cordoned)

    # --- RuntimeListener, called by the handles ---

    def runtime_changed(self, name: RuntimeName) -> None:
        for listener in self._listeners:
            listener.runtime_changed(name)

    def pod_changed(self, name: RuntimeName, uid: PodUid, event: RuntimeEvent | None) -> None:
        """Report the pod's change to every listener, except for pods that the registry itself removes from the runtime.

        These are pods with a tombstone, and pods that a list shows on a runtime that they are not assigned to.
        """
        if (uid, name) in self._tombstones.all:
            return
        if event is None and self._is_second_life(name, uid):
            self._end_second_life(name, uid)
            return
        for listener in self._listeners:
            listener.pod_changed(name, uid, event)

    # --- private ---

    def _is_second_life(self, name: RuntimeName, uid: PodUid) -> bool:
        """Return True if the pod exists on the runtime `name` but is assigned to another one.

        This happens if the database was lost and the pod was assigned again while this runtime did not answer.
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
        # One event for the pod; all its sandboxes have the same name and UID.
        for sandbox in snapshot.sandboxes[:1]:
            ref = ObjectRef(kind="Pod", name=sandbox.name, namespace=sandbox.namespace, uid=str(uid))
            message = f"Stopping pod on runtime {name}: it is bound to runtime {bound}"
            self._events.record(ref, type="Warning", reason=names.Event.KILLING, message=message)
        stone = Tombstone(uid=uid, runtime=name, sandbox_ids=tuple(s.id for s in snapshot.sandboxes))
        self._group.create_task(self._add_stone(stone), name=f"second-life-{uid}")

    async def _add_stone(self, stone: Tombstone) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            try:
                return await self._tombstones.add(stone)
            except KubeletxError as error:
                log.debug("Failed to write a tombstone", pod_uid=stone.uid, err=str(error))
                await self._clock.sleep(backoff.next())

    async def _clear_leftovers(self, handle: RuntimeHandle) -> None:
        await handle.wait_listed()
        await clear_leftovers(
            handle,
            self._tombstones,
            self._clock,
            on_cleared=lambda: self.runtime_changed(handle.name),
        )

    async def _settle_bindings(self) -> None:
        while True:
            await self._clock.sleep(30.0)
            try:
                await self._bindings.settle()
            except KubeletxError as error:
                log.debug("Failed to settle bindings", err=str(error))

    def _is_used(self, name: RuntimeName) -> bool:
        return self._bindings.is_writing(name) or bool(self.bound_uids(name))

    def _is_orphan(self, name: RuntimeName, uid: PodUid) -> bool:
        return self._bindings.find(uid) is None and (uid, name) not in self._tombstones.all
