"""`SpecBuilder`: builds the specs that runtimes get, and prepares the pod's directories, cgroup and volumes for them.

    prepare ─► sandbox ─► unit for each container ─► release ─► remove

Prepared volumes, cgroups and sandbox specs are cached while the pod is unchanged. A new agent process prepares them
again, without an effect on running containers.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import (
    ClusterObjects,
    IdMapping,
    KubeletxError,
    PodUid,
    Process,
    Resources,
    SandboxSpec,
    Unavailable,
    UnitId,
    UnitSpec,
    UnitState,
)
from kubeletx.api.names import MADE_WITH_RESOURCES, RESTART_GENERATION, Event
from kubeletx.kube.types.core import AnyUnit, Container, EphemeralContainer, Pod, PodUnit
from kubeletx.runtimes.binding.selection import split_handler
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.volumes.cluster_objects import ObjectSet, fetch_environment
from kubeletx.volumes.prepared import PreparedVolumes
from kubeletx.volumes.references import object_user

from ..dependencies import PodDependencies
from ..model.actions import StartUnit
from ..model.facts import DesiredPod, PodFacts
from ..model.roles import field_of, pod_ref, spec_of
from ..model.sizes import INFEASIBLE, resources_text
from ..model.spec_errors import CREATE_CONTAINER_CONFIG_ERROR
from ..plan.resize_container import DEFERRED, largest_pod, with_granted
from ..plan.resize_pod import with_pod_granted
from ..specs.environment import MASTER_NAMESPACE, service_variables, skipped_names
from ..specs.extras import gather_extras
from ..specs.inputs import SandboxInputs, UnitInputs
from ..specs.resources import unit_resources
from ..specs.sandbox import build_sandbox_spec
from ..specs.unit import compose_unit
from ..workloads.table import workload_of


class SpecBuilder:
    """Builder of the sandbox, container and machine specs of all pods.

    For the errors that its methods raise see `VolumePreparer` and package `pods.specs`.
    """

    def __init__(self, deps: PodDependencies) -> None:
        self._deps = deps
        self._prepared: dict[PodUid, tuple[Pod, PreparedVolumes]] = {}
        self._cgroup_parents: dict[PodUid, str] = {}
        self._sandboxes: dict[PodUid, tuple[tuple[object, ...], SandboxSpec]] = {}

    async def prepare(self, desired: DesiredPod) -> dict[str, int]:
        """Create the pod's directories and volumes. Return container name → number of earlier runs by its log files."""
        cluster = self._cluster(desired)
        if cluster is not None:
            cluster.follow(object_user(desired.pod))
        before = await self._deps.directories.create(desired.pod)
        await self._volumes_of(desired, again=True)
        return before

    async def sandbox(self, desired: DesiredPod, handle: RuntimeHandle, attempt: int) -> SandboxSpec:
        """Build the spec of the pod's sandbox.

        `attempt`: attempt number of the sandbox. The spec is cached for the same pod spec, source, runtime and attempt.
        """
        key = (attempt, desired.spec_hash, desired.source, handle.name)
        known = self._sandboxes.get(desired.uid)
        if known is not None and known[0] == key:
            return known[1]
        inputs = SandboxInputs(
            pod=desired.pod,
            node=self._deps.node,
            user_mappings=await self._user_mappings(desired.pod),
            attempt=attempt,
            handler=self._handler(desired.pod),
            runtime_name=handle.name,
            runtime_kind=handle.kind,
            workload_type=handle.workload_type,
            source=desired.source,
            spec_hash=desired.spec_hash,
            cgroup_parent=await self._cgroup_parent(desired.pod),
        )
        spec = build_sandbox_spec(inputs)
        self._sandboxes[desired.uid] = (key, spec)
        return spec

    async def unit(
        self, desired: DesiredPod, facts: PodFacts, handle: RuntimeHandle, action: StartUnit
    ) -> UnitSpec:
        """Build the spec of the container or machine that `action` starts, and prepare its volumes on the node."""
        pod, name = desired.pod, action.name
        workload = workload_of(facts)
        container = workload.shaped(spec_of(pod, name, own_kernel=facts.own.has_own_kernel), pod, facts)
        if isinstance(container, Container) and _is_refused(facts, name):
            container = with_granted(container, facts)
        image = facts.unit(name).image
        if _was_resized_by_restart(facts, name):  # its old resources are free now that it has stopped
            await self.limit_pod(largest_pod(pod, facts))
        shaped = _as_container(container)
        objects, services = await self._environment_of(desired, shaped)
        prepared = await self._volumes_of(desired)
        providers = self._deps.extras
        inputs = UnitInputs(
            pod=with_pod_granted(pod, facts),
            container=shaped,
            node=self._deps.node,
            attempt=action.attempt,
            image=image if image is not None and image.ref else None,
            runtime_name=handle.name,
            traits=handle.traits,
            pod_ips=_pod_ips(facts),
            target_unit=_target_unit(container, facts),
            user_mappings=await self._user_mappings(pod),
            objects=objects,
            services=services,
            extras=await gather_extras(providers, pod, shaped) if providers else (),
        )
        spec = await compose_unit(inputs, self._deps.volumes, prepared)
        if isinstance(spec.detail, Process):
            made_with = {MADE_WITH_RESOURCES: resources_text(container.resources)}
            spec = replace(spec, annotations={**spec.annotations, **made_with})
        if action.generation:
            spec = replace(spec, annotations={**spec.annotations, RESTART_GENERATION: str(action.generation)})
        return workload.with_overrides(spec, pod, facts)

    def resources(self, pod: Pod, facts: PodFacts, name: str) -> Resources:
        """Compute the resources that running container or machine `name` should have by this version of the pod."""
        unit = spec_of(pod, name, own_kernel=facts.own.has_own_kernel)
        unit = workload_of(facts).shaped(unit, pod, facts)
        return unit_resources(pod, _as_container(unit), self._deps.node)

    async def limit_pod(self, pod: Pod) -> None:
        """Set the limits of the pod's cgroup from this version of the pod."""
        if self._deps.cgroups is not None:
            self._cgroup_parents[pod.uid] = await self._deps.cgroups.create(pod)

    async def remove(self, pod: Pod) -> None:
        """Remove the pod's cgroup, data directory and logs. Its volumes must have been released."""
        self.forget(pod.uid)
        if self._deps.cgroups is not None:
            await self._deps.cgroups.remove(pod)
        await self._deps.directories.remove(pod)

    async def release(self, desired: DesiredPod) -> None:
        """Unmount and remove the pod's volumes, and stop watching the cluster objects that the pod refers to."""
        self._leave(desired.uid)
        await self._deps.volumes.release(desired.uid)

    def forget(self, uid: PodUid) -> None:
        """Drop all cached data of a pod that is gone."""
        self._leave(uid)
        self._prepared.pop(uid, None)
        self._cgroup_parents.pop(uid, None)
        self._sandboxes.pop(uid, None)

    # --- private ------------------------------------------------------------------------------------

    def _cluster(self, desired: DesiredPod) -> ClusterObjects | None:
        return self._deps.cluster.get(desired.source)

    def _leave(self, uid: PodUid) -> None:
        for cluster in self._deps.cluster.values():
            cluster.leave(uid)

    async def _environment_of(
        self, desired: DesiredPod, container: PodUnit
    ) -> tuple[ObjectSet | None, dict[str, str]]:
        """Fetch the cluster objects that a container's environment refers to, and build its service variables.

        Return (None, {}) for a pod whose source is not a cluster. Keys that are not valid variable names are reported
        in an event.
        """
        cluster, pod = self._cluster(desired), desired.pod
        if cluster is None or not isinstance(container, Container):
            return None, {}
        try:
            objects = await fetch_environment(pod, container, cluster)
            services = list(await cluster.list_services(MASTER_NAMESPACE))
            if pod.spec.enable_service_links and pod.namespace != MASTER_NAMESPACE:
                services += await cluster.list_services(pod.namespace)
        except KubeletxError as error:
            raise Unavailable(str(error), reason=CREATE_CONTAINER_CONFIG_ERROR) from error
        ref = pod_ref(pod, field_of(pod, container.name))
        for text in skipped_names(container, pod, objects):
            self._deps.events.record(ref, type="Warning", reason=Event.INVALID_VARIABLE_NAMES, message=text)
        links = bool(pod.spec.enable_service_links)
        return objects, service_variables(services, pod.namespace, links=links)

    async def _volumes_of(self, desired: DesiredPod, *, again: bool = False) -> PreparedVolumes:
        """Return the pod's prepared volumes.

        They are prepared (again) if the pod object changed, as when its source delivers it after a restart of the
        agent, or if the caller requests it.
        """
        pod = desired.pod
        prepared_for, prepared = self._prepared.get(pod.uid, (None, None))
        if again or prepared is None or prepared_for is not pod:
            prepared = await self._deps.volumes.prepare(pod, self._cluster(desired))
            self._prepared[pod.uid] = (pod, prepared)
        return prepared

    def _handler(self, pod: Pod) -> str:
        """Return the runtime handler that the pod's runtime class names; empty if none."""
        target = self._deps.classes.get(pod.spec.runtime_class_name or "", "")
        return split_handler(target, {handle.name for handle in self._deps.registry.handles()})[1]

    async def _user_mappings(self, pod: Pod) -> tuple[IdMapping, ...] | None:
        if pod.spec.host_users is not False:
            return None
        return await self._deps.user_mappings(pod)

    async def _cgroup_parent(self, pod: Pod) -> str:
        if self._deps.cgroups is None:
            return ""
        parent = self._cgroup_parents.get(pod.uid)
        if parent is None:
            parent = self._cgroup_parents[pod.uid] = await self._deps.cgroups.create(pod)
        return parent


def _was_resized_by_restart(facts: PodFacts, name: str) -> bool:
    known = facts.overrides.granted.get(name) if facts.overrides is not None else None
    return known is not None and known.restart


def _is_refused(facts: PodFacts, name: str) -> bool:
    """Return True if the last resize of the container was refused, because its new size does not fit on the node."""
    failure = facts.unit(name).resize_failure
    return failure is not None and failure.reason in (DEFERRED, INFEASIBLE)


def _pod_ips(facts: PodFacts) -> tuple[str, ...]:
    status = facts.snapshot.sandbox_status if facts.snapshot is not None else None
    return status.ips if status is not None else ()


def _as_container(
    container: AnyUnit,
) -> PodUnit:
    """Convert an ephemeral container to a `Container`, which has the same fields except targetContainerName."""
    if not isinstance(container, EphemeralContainer):
        return container
    fields = {
        name: getattr(container, name) for name in Container.__struct_fields__ if hasattr(container, name)
    }
    return Container(**fields)


def _target_unit(container: object, facts: PodFacts) -> UnitId | None:
    target = getattr(container, "target_container_name", None)
    if not target or facts.snapshot is None:
        return None
    for unit in facts.snapshot.units:
        if unit.name == target and unit.state is UnitState.RUNNING:
            return unit.id
    return None
