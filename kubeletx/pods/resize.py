"""Containers that get other resources while they run: what was granted, what comes next, what users see. Pure.

    spec (wanted) ──► fits the node? ──no──► PodResizePending: Deferred (may fit later), Infeasible (never)
                          │ yes, counted
                          ▼
      pod's cgroup, then the container's (or its restart, if resizePolicy says so) ──► granted, written down

A container is made with what its spec says, which its annotation keeps; what was granted later stands in the pod's
orders. Both outlive the agent, so that a change made while it was away is seen as one. Only CPU and memory can change.

Source: KEP-1287; kubelet, pkg/kubelet/allocation.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from msgspec.structs import replace

from kubeletx.api import UnitState, UnitSummary
from kubeletx.api.names import MADE_WITH_RESOURCES
from kubeletx.kube.core import Container, Pod, PodCondition, ResourceRequirements
from kubeletx.kube.quantity import to_bytes, to_millicores

from .actions import ReadOrders, ResizeContainer, StopUnit
from .facts import DesiredPod, PodFacts
from .progress import newest
from .roles import init_units, is_sidecar, regular_units

if TYPE_CHECKING:
    from .plan import Draft

RESIZED: Final = ("cpu", "memory")
PENDING, IN_PROGRESS = "PodResizePending", "PodResizeInProgress"
DEFERRED, INFEASIBLE, ERROR = "Deferred", "Infeasible", "Error"
C = TypeVar("C", bound=Container)

_decoder = msgspec.json.Decoder(ResourceRequirements)


def resources_text(resources: ResourceRequirements) -> str:
    """CPU and memory as one word, for an annotation."""
    return msgspec.json.encode(_resized(resources), order="sorted").decode()


def is_same(one: ResourceRequirements, other: ResourceRequirements) -> bool:
    """Equal amounts of CPU and memory, however they are written."""
    return _amounts(one) == _amounts(other)


def granted(unit: UnitSummary, facts: PodFacts) -> ResourceRequirements | None:
    """What the container has; None when nobody wrote it down."""
    known = facts.orders.granted.get(unit.name) if facts.orders is not None else None
    if known is not None and known.unit_id == unit.id:
        return known.resources
    text = unit.annotations.get(MADE_WITH_RESOURCES)
    if text is None:
        return None
    try:
        return _decoder.decode(text)
    except msgspec.DecodeError:
        return None


def with_granted(container: C, facts: PodFacts) -> C:
    """The container with what it has, where its spec wants something that it did not get yet."""
    unit = newest(facts, container.name)
    has = granted(unit, facts) if unit is not None else None
    if has is None or is_same(has, container.resources):
        return container
    return replace(container, resources=_merged(container.resources, has))


def granted_pod(pod: Pod, facts: PodFacts) -> Pod:
    """The pod as it counts on the node: with what its containers have."""
    spec = pod.spec
    if facts.is_machine or facts.snapshot is None:
        return pod
    containers = tuple(with_granted(one, facts) for one in spec.containers)
    init = tuple(with_granted(one, facts) if is_sidecar(one) else one for one in spec.init_containers)
    if containers == spec.containers and init == spec.init_containers:
        return pod
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init))


def largest_pod(pod: Pod, facts: PodFacts) -> Pod:
    """With the larger of wanted and granted everywhere: what its cgroup must allow during the change."""
    spec = pod.spec
    containers = tuple(_larger(one, with_granted(one, facts)) for one in spec.containers)
    init = tuple(_larger(one, with_granted(one, facts)) for one in spec.init_containers)
    return replace(pod, spec=replace(spec, containers=containers, init_containers=init))


def plan_resize(container: Container, unit: UnitSummary, facts: PodFacts, draft: Draft) -> None:
    """Plan the next step for one container that runs."""
    if unit.state is not UnitState.RUNNING or unit.annotations.get(MADE_WITH_RESOURCES) is None:
        return
    has = granted(unit, facts)
    if facts.orders is None:
        if facts.recovered or (has is not None and not is_same(has, container.resources)):
            draft.do(ReadOrders())
        return
    known = facts.orders.granted.get(container.name)
    if known is not None and known.unit_id == unit.id and known.restart:
        text = f"Container {container.name} gets other resources, will be restarted"
        draft.end(
            StopUnit(
                name=container.name,
                unit_id=unit.id,
                grace_seconds=facts.grace_seconds,
                reason="Resized",
                message=text,
            )
        )
        return
    if has is None or is_same(has, container.resources):
        return
    if draft.is_due(facts.unit(container.name).resize_failure):
        draft.do(
            ResizeContainer(
                name=container.name,
                unit_id=unit.id,
                resources=_resized(container.resources),
                restart=_needs_restart(container, has),
            )
        )


def resize_conditions(desired: DesiredPod, facts: PodFacts) -> Iterator[PodCondition]:
    """PodResizePending and PodResizeInProgress, while they hold."""
    waiting, running, failures = [], False, []
    for container in _resizable(desired.pod):
        unit = newest(facts, container.name)
        has = granted(unit, facts) if unit is not None and unit.state.is_alive else None
        if has is None or is_same(has, container.resources):
            continue
        failure = facts.unit(container.name).resize_failure
        if failure is not None and failure.reason in (DEFERRED, INFEASIBLE):
            waiting.append(failure)
            continue
        running = True
        if failure is not None:
            failures.append(failure)
    if waiting:
        worst = next((one for one in waiting if one.reason == INFEASIBLE), waiting[0])
        yield PodCondition(type=PENDING, status="True", reason=worst.reason, message=worst.message)
    if running:
        first = failures[0] if failures else None
        yield PodCondition(
            type=IN_PROGRESS,
            status="True",
            reason=ERROR if first is not None else None,
            message=first.message if first is not None else None,
        )


def _resizable(pod: Pod) -> Iterator[Container]:
    yield from (one for one in init_units(pod) if isinstance(one, Container) and is_sidecar(one))
    yield from (one for one in regular_units(pod) if isinstance(one, Container))


def _needs_restart(container: Container, has: ResourceRequirements) -> bool:
    policies = {rule.resource_name: rule.restart_policy for rule in container.resize_policy}
    before, after = _amounts(has), _amounts(container.resources)
    changed = {name for name in RESIZED if before.get(name) != after.get(name)}
    return any(policies.get(name) == "RestartContainer" for name in changed)


def _resized(resources: ResourceRequirements) -> ResourceRequirements:
    return ResourceRequirements(
        limits={name: text for name, text in resources.limits.items() if name in RESIZED},
        requests={name: text for name, text in resources.requests.items() if name in RESIZED},
    )


def _merged(wanted: ResourceRequirements, has: ResourceRequirements) -> ResourceRequirements:
    return replace(
        wanted,
        limits={**{k: v for k, v in wanted.limits.items() if k not in RESIZED}, **has.limits},
        requests={**{k: v for k, v in wanted.requests.items() if k not in RESIZED}, **has.requests},
    )


def _larger(one: C, other: Container) -> C:
    """The larger amount of each; no limit is larger than any."""
    first, second = one.resources, other.resources
    if is_same(first, second):
        return one
    limits = {
        name: max(first.limits[name], second.limits[name], key=partial(_amount, name))
        for name in first.limits
        if name in second.limits
    }
    requests = {
        name: max(
            (table[name] for table in (first.requests, second.requests) if name in table),
            key=partial(_amount, name),
        )
        for name in first.requests.keys() | second.requests.keys()
    }
    return replace(one, resources=replace(first, limits=limits, requests=requests))


def _amounts(resources: ResourceRequirements) -> dict[str, tuple[int, int]]:
    """Name to (request, limit); -1: none."""
    return {
        name: (
            _amount(name, resources.requests.get(name)),
            _amount(name, resources.limits.get(name)),
        )
        for name in RESIZED
    }


def _amount(name: str, text: str | None) -> int:
    if text is None:
        return -1
    return to_millicores(text) if name == "cpu" else to_bytes(text)
