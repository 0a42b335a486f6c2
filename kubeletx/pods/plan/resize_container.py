"""In-place resize of containers: the resources that they have, the next step, and the pod conditions. Pure.

    changed spec ──► fits the node? ──no──► PodResizePending: Deferred (may fit later), Infeasible (never)
                          │ yes: reserve the resources
                          ▼
      change the pod's cgroup, then the container's (or restart it, if resizePolicy says so) ──► store the grant

A container is created with the resources of its spec, and an annotation on it records them. Later grants are
stored in the pod's overrides file. Both survive a restart of the agent, so the agent notices a change of the spec
that was made while it was stopped. Only CPU and memory can change.

Source: KEP-1287; kubelet, pkg/kubelet/allocation.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from kubeletx.api import UnitState, UnitSummary
from kubeletx.api.names import MADE_WITH_RESOURCES
from kubeletx.kube.types.core import Container, Pod, PodCondition, ResourceRequirements

from ..model.actions import ResizeContainer
from ..model.draft import Draft
from ..model.facts import ActionFailure, DesiredPod, PodFacts
from ..model.roles import init_units, is_sidecar, regular_units
from ..model.sizes import INFEASIBLE, RESIZED, amounts, is_same, larger, merged, read_resources, resized
from ..workloads.table import workload_of
from .progress import has_ended
from .resize_pod import with_pod_granted

PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, ERROR = "Deferred", "Error"
C = TypeVar("C", bound=Container)


def granted(unit: UnitSummary, facts: PodFacts) -> ResourceRequirements | None:
    """Return the CPU and memory last granted to a container, else the values at its creation; None if unknown."""
    known = facts.overrides.granted.get(unit.name) if facts.overrides is not None else None
    if known is not None and known.unit_id == unit.id:
        return known.resources
    text = unit.annotations.get(MADE_WITH_RESOURCES)
    if text is None:
        return None
    return read_resources(text)


def in_effect(container: Container, facts: PodFacts) -> ResourceRequirements:
    """Return the resources that a container has now: the granted ones, or the former ones until it is restarted."""
    unit = facts.newest(container.name)
    known = facts.overrides.granted.get(container.name) if facts.overrides is not None else None
    if known is None or unit is None or known.unit_id != unit.id or known.before is None:
        return with_granted(container, facts).resources
    return merged(container.resources, known.before)


def with_granted(container: C, facts: PodFacts) -> C:
    """Return a copy of the container in which the granted resources replace the spec's.

    If the granted resources are unknown or equal, return the container unchanged.
    """
    unit = facts.newest(container.name)
    own = workload_of(facts).granted(container, unit, facts)
    if own is not None:
        return replace(container, resources=own)
    has = granted(unit, facts) if unit is not None else None
    if has is None or is_same(has, container.resources):
        return container
    return replace(container, resources=merged(container.resources, has))


def granted_pod(pod: Pod, facts: PodFacts) -> Pod:
    """Return a copy of the pod in which the granted resources, of the pod and its containers, replace the spec's."""
    if facts.snapshot is None:
        return pod
    whole = workload_of(facts).with_granted(pod, lambda container: with_granted(container, facts).resources)
    if whole is not None:
        return whole
    pod = with_pod_granted(pod, facts)
    spec = pod.spec
    containers = tuple(with_granted(container, facts) for container in spec.containers)
    init = tuple(
        with_granted(container, facts) if is_sidecar(container) or _is_alive(container, facts) else container
        for container in spec.init_containers
    )
    if containers == spec.containers and init == spec.init_containers:
        return pod
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init))


def largest_pod(pod: Pod, facts: PodFacts) -> Pod:
    """Return the pod with the larger of the spec's and the granted amount of each resource.

    The pod's cgroup has these limits during a resize.
    """
    spec = pod.spec
    containers = tuple(_larger(container, with_granted(container, facts)) for container in spec.containers)
    init = tuple(_larger(container, with_granted(container, facts)) for container in spec.init_containers)
    whole = larger(spec.resources, with_pod_granted(pod, facts).spec.resources)
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init, resources=whole))


def plan_resize(container: Container, unit: UnitSummary, facts: PodFacts, draft: Draft) -> None:
    """Plan the next step of a resize, if the spec of a running container differs from its granted resources.

    The step is to load the overrides file, to restart the container, or to resize it in place.
    """
    if unit.state is not UnitState.RUNNING or unit.annotations.get(MADE_WITH_RESOURCES) is None:
        return
    has = granted(unit, facts)
    if facts.overrides is None:
        if facts.recovered or (has is not None and not is_same(has, container.resources)):
            draft.read_overrides()
        return
    known = facts.overrides.granted.get(container.name)
    if known is not None and known.unit_id == unit.id and known.restart:
        text = f"Container {container.name} gets other resources, will be restarted"
        draft.stop(unit, facts, "Resized", text)
        return
    if has is None or is_same(has, container.resources):
        return
    if draft.is_due(facts.unit(container.name).resize_failure):
        draft.do(
            ResizeContainer(
                name=container.name,
                unit_id=unit.id,
                resources=resized(container.resources),
                restart=_needs_restart(container, has),
            )
        )


def resize_conditions(desired: DesiredPod, facts: PodFacts) -> Iterator[PodCondition]:
    """Yield the pod conditions PodResizePending and PodResizeInProgress, each only while it is True."""
    open_ = list(_open_resizes(desired, facts))
    waiting = [resize for resize in open_ if resize is not None and resize.reason in (DEFERRED, INFEASIBLE)]
    if waiting:
        worst = next((resize for resize in waiting if resize.reason == INFEASIBLE), waiting[0])
        yield PodCondition(type=PENDING, status="True", reason=worst.reason, message=worst.message)
    if len(waiting) < len(open_):
        first = next((resize for resize in open_ if resize is not None and resize not in waiting), None)
        yield PodCondition(
            type=IN_PROGRESS,
            status="True",
            reason=ERROR if first is not None else None,
            message=first.message if first is not None else None,
        )


def _open_resizes(desired: DesiredPod, facts: PodFacts) -> Iterator[ActionFailure | None]:
    """Yield one item for each unfinished resize of the pod or a container: its last failure, or None if it has none."""
    pod = desired.pod
    has = with_pod_granted(pod, facts).spec.resources
    if facts.runtime is not None and not is_same(has, pod.spec.resources) and not has_ended(desired, facts):
        yield facts.resize_failure
    workload = workload_of(facts)
    for container in _resizable(pod):
        unit = facts.newest(container.name)
        if unit is None or not unit.state.is_alive:
            continue
        if not is_same(in_effect(container, facts), workload.wanted(container, desired, facts)):
            yield facts.unit(container.name).resize_failure


def _resizable(pod: Pod) -> Iterator[Container]:
    yield from (unit for unit in (*init_units(pod), *regular_units(pod)) if isinstance(unit, Container))


def _is_alive(container: Container, facts: PodFacts) -> bool:
    unit = facts.newest(container.name)
    return unit is not None and unit.state.is_alive


def _needs_restart(container: Container, has: ResourceRequirements) -> bool:
    policies = {rule.resource_name: rule.restart_policy for rule in container.resize_policy}
    before, after = amounts(has), amounts(container.resources)
    changed = {name for name in RESIZED if before.get(name) != after.get(name)}
    return any(policies.get(name) == "RestartContainer" for name in changed)


def _larger(container: C, other: Container) -> C:
    return replace(container, resources=larger(container.resources, other.resources))
