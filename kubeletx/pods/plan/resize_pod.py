"""Changes of the pod's own resources (`spec.resources`) while it runs. Pure.

    pod's cgroup: larger of old and new ─► containers that use the pod's limits ─► cgroup: new ─► grant stored

A sandbox's annotation holds the resources at its creation, the pod's overrides file those granted since.
Containers without a limit of their own use the pod's, so they change with it, always in place.

Source: KEP-5419; kubelet, pkg/kubelet/allocation.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from kubeletx.api import UnitState, UnitSummary
from kubeletx.api.names import MADE_WITH_POD_RESOURCES
from kubeletx.kube.types.core import Container, Pod, ResourceRequirements

from ..model.actions import ReadOverrides, ResizePod
from ..model.draft import Draft
from ..model.facts import PodFacts
from ..model.roles import init_units, is_sidecar, regular_units
from ..model.sizes import RESIZED, is_same, merged, read_resources, resized
from ..workloads.table import workload_of
from .progress import newest

_NOTHING = ResourceRequirements()


def pod_granted(pod: Pod, facts: PodFacts) -> ResourceRequirements:
    """Granted CPU and memory of the pod as a whole; empty if its spec never had any."""
    if facts.overrides is not None and facts.overrides.granted_pod is not None:
        return facts.overrides.granted_pod
    sandboxes = facts.snapshot.sandboxes if facts.snapshot is not None else ()
    if not sandboxes:
        return resized(pod.spec.resources)
    return read_resources(sandboxes[0].annotations.get(MADE_WITH_POD_RESOURCES, "{}")) or _NOTHING


def with_pod_granted(pod: Pod, facts: PodFacts) -> Pod:
    """Return the pod with its granted `spec.resources`.

    Unchanged if they are equal or the workload resizes itself.
    """
    has = pod_granted(pod, facts)
    if workload_of(facts).resizes_itself or is_same(has, pod.spec.resources):
        return pod
    return replace(pod, spec=replace(pod.spec, resources=merged(pod.spec.resources, has)))


def plan_pod_resize(pod: Pod, facts: PodFacts, draft: Draft) -> None:
    """Plan the next step of a resize for a pod whose sandbox is ready."""
    has = pod_granted(pod, facts)
    if is_same(has, pod.spec.resources) and (facts.overrides is not None or is_same(has, _NOTHING)):
        return
    if facts.overrides is None:
        draft.do(ReadOverrides())
    elif draft.is_due(facts.resize_failure) and not any(key.startswith("unit/") for key in facts.in_flight):
        draft.do(ResizePod(resources=resized(pod.spec.resources)))


def heirs(pod: Pod, facts: PodFacts) -> Iterator[UnitSummary]:
    """Yield running units that use one of the pod's limits, because their container has none of its own."""
    limited = [name for name in RESIZED if name in pod.spec.resources.limits]
    sidecars = (one for one in init_units(pod) if is_sidecar(one))
    for container in (*sidecars, *regular_units(pod)):
        unit = newest(facts, container.name)
        if unit is None or unit.state is not UnitState.RUNNING or not isinstance(container, Container):
            continue
        if any(name not in container.resources.limits for name in limited):
            yield unit
