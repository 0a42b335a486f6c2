"""In-place resize of the pod-level resources (`spec.resources`). Pure.

    pod's cgroup: the larger of old and new limits ─► containers without own limits: new limits
      ─► pod's cgroup: new limits ─► store the grant

An annotation on the sandbox records the resources at its creation; the pod's overrides file stores those granted
later. A container without its own limit uses the pod's limit, so it is resized together with the pod, always in
place.

Source: KEP-5419; kubelet, pkg/kubelet/allocation.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kubeletx.api import UnitState, UnitSummary
from kubeletx.api.names import MADE_WITH_POD_RESOURCES
from kubeletx.kube.types.core import Container, Pod, ResourceRequirements

from ..model.actions import ResizePod
from ..model.draft import Draft
from ..model.facts import PodFacts
from ..model.roles import init_units, regular_units
from ..model.sizes import RESIZED, is_same, merged, read_resources, resized
from ..workloads.table import workload_of

_NOTHING = ResourceRequirements()


def pod_granted(pod: Pod, facts: PodFacts) -> ResourceRequirements:
    """Return the pod-level CPU and memory last granted, else the values at the sandbox's creation, maybe empty.

    If the pod has no sandbox yet, return its spec's resources.
    """
    if facts.overrides is not None and facts.overrides.granted_pod is not None:
        return facts.overrides.granted_pod
    sandboxes = facts.snapshot.sandboxes if facts.snapshot is not None else ()
    if not sandboxes:
        return resized(pod.spec.resources)
    return read_resources(sandboxes[0].annotations.get(MADE_WITH_POD_RESOURCES, "{}")) or _NOTHING


def with_pod_granted(pod: Pod, facts: PodFacts) -> Pod:
    """Return the pod with its granted pod-level resources in `spec.resources`.

    Unchanged if they are equal, or if its workload has its own resize rules (`Workload.resizes_itself`).
    """
    has = pod_granted(pod, facts)
    if workload_of(facts).resizes_itself or is_same(has, pod.spec.resources):
        return pod
    return replace(pod, spec=replace(pod.spec, resources=merged(pod.spec.resources, has)))


def plan_pod_resize(pod: Pod, facts: PodFacts, draft: Draft) -> None:
    """Plan the next step of a resize, if `spec.resources` differs from the granted pod-level resources.

    The pod's sandbox must be ready.
    """
    has = pod_granted(pod, facts)
    if is_same(has, pod.spec.resources) and (facts.overrides is not None or is_same(has, _NOTHING)):
        return
    if facts.overrides is None:
        draft.read_overrides()
    elif draft.is_due(facts.resize_failure) and not any(key.startswith("unit/") for key in facts.in_flight):
        draft.do(ResizePod(resources=resized(pod.spec.resources)))


def units_with_pod_limit(pod: Pod, facts: PodFacts) -> Iterator[UnitSummary]:
    """Yield the running units that use the pod's CPU or memory limit, because their container has no such limit."""
    limited = [name for name in RESIZED if name in pod.spec.resources.limits]
    for container in (*init_units(pod), *regular_units(pod)):
        unit = facts.newest(container.name)
        if unit is None or unit.state is not UnitState.RUNNING or not isinstance(container, Container):
            continue
        if any(name not in container.resources.limits for name in limited):
            yield unit
