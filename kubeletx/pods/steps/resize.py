"""Resize a running container or the pod: admission first, then the pod's cgroup, then the containers' cgroups."""

from __future__ import annotations

from typing import TypeVar

import structlog
from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    InvalidPod,
    KubeletxError,
    SupportsResize,
    SupportsStats,
    UnitId,
    Unsupported,
)
from kubeletx.api.names import POD_UID, Event
from kubeletx.kube.text.quantity import to_bytes
from kubeletx.kube.types.core import Pod, ResourceRequirements

from ..dependencies import PodDependencies
from ..model import results
from ..model.actions import ResizeContainer, ResizePod
from ..model.facts import ActionFailure, DesiredPod, PodFacts
from ..model.grants import Granted, Grants
from ..model.phase import FINAL
from ..model.results import Result
from ..model.sizes import INFEASIBLE, lowers_memory
from ..plan.progress import newest
from ..plan.resize_container import DEFERRED, granted, granted_pod, largest_pod
from ..plan.resize_pod import heirs, pod_granted, with_pod_granted
from .context import StepContext, after_error, is_silence, level_of

log = structlog.get_logger(__name__)

G = TypeVar("G", bound=Grants)


async def resize_container(step: StepContext, action: ResizeContainer) -> Result:
    """Resize one container, or store the grant for its restart.

    A size that does not fit now is retried later.
    """
    try:
        count(step, step.pod)
        await step.specs.limit_pod(largest_pod(step.pod, step.facts))
        if not action.restart:
            unit = newest(step.facts, action.name)
            has = granted(unit, step.facts) if unit is not None else None
            if lowers_memory(has, action.resources):
                _check_use((await _used(step)).get(action.unit_id, 0), action.resources)
            # Limits of the pod that it lives by change with the pod alone, which checks what is in use.
            await _update(step, with_pod_granted(step.pod, step.facts), action.name, action.unit_id)
        await step.overrides.amend(step.worker, lambda overrides: _with(overrides, action))
        if not action.restart:  # others that are still to shrink keep their room
            await step.specs.limit_pod(largest_pod(step.pod, step.facts))
    except KubeletxError as error:
        return failed(step, action.name, "container", error, Event.RESIZE_ERROR)
    if not action.restart:
        text = f"Resized container {action.name} in place"
        step.normal(Event.RESIZE_COMPLETED, text, container=action.name)
    return results.Resized(action.name)


async def resize_pod(step: StepContext, action: ResizePod) -> Result:
    """Resize the pod as a whole, with the containers that use its limits; store the grant."""
    specs = step.specs
    try:
        count(step, step.pod)
        if lowers_memory(pod_granted(step.pod, step.facts), action.resources):
            _check_use(sum((await _used(step)).values()), action.resources)
        await specs.limit_pod(largest_pod(step.pod, step.facts))
        for unit in heirs(step.pod, step.facts):
            await _update(step, step.pod, unit.name, unit.id)
        after = _given(step.facts.overrides or Grants(), action)
        await specs.limit_pod(largest_pod(step.pod, replace(step.facts, overrides=after)))
        await step.overrides.amend(step.worker, lambda overrides: _given(overrides, action))
    except KubeletxError as error:
        uncount(step, error)
        reason = _tell(step, "the pod", error, step.facts.resize_failure)
        return after_error(error, step.now(), results.PodResizeFailed(reason, str(error)))
    step.normal(Event.RESIZE_COMPLETED, "Resized the pod in place")
    return results.PodResized()


def count(step: StepContext, pod: Pod) -> None:
    """Count the pod on the node with the resources of this spec.

    Raises Conflict (Deferred, Infeasible) if they do not fit.
    """
    admission, source = step.deps.admission, step.desired.traits
    refusal = admission.change(pod, step.handle, source)
    if refusal is not None:
        fits = admission.would_ever_fit(pod, step.handle, source)
        raise Conflict(refusal.message, reason=DEFERRED if fits else INFEASIBLE)


def uncount(step: StepContext, error: KubeletxError) -> None:
    """Count the pod with its present resources again if a retry of the refused change cannot succeed."""
    if isinstance(error, Unsupported | InvalidPod):
        count_granted(step.deps, step.facts, step.desired)


def count_granted(deps: PodDependencies, facts: PodFacts, desired: DesiredPod) -> None:
    """Count the pod on the node with the resources that it has now, not those that it wants.

    A pod that has ended is not counted.
    """
    runtime = facts.runtime
    status = deps.board.statuses.get(desired.uid)
    if runtime is not None and (status is None or status.phase not in FINAL):
        deps.admission.release(desired.uid)
        pod = granted_pod(desired.pod, facts)
        deps.admission.restore(pod, deps.registry.find(runtime), desired.traits)


async def _update(step: StepContext, pod: Pod, name: str, unit_id: UnitId) -> None:
    handle = step.handle
    able: SupportsResize | None = handle.capability(SupportsResize)
    if able is None:
        raise Unsupported(f"runtime {handle.name} cannot resize its units", reason=INFEASIBLE)
    resources = step.specs.resources(pod, step.facts, name)
    await handle.change("update_resources", lambda: able.update_resources(unit_id, resources))


async def _used(step: StepContext) -> dict[UnitId, int]:
    """Memory in bytes that each unit of the pod uses; empty if the runtime has no statistics."""
    able: SupportsStats | None = step.handle.capability(SupportsStats)
    if able is None:
        return {}
    match = {POD_UID: str(step.uid)}
    found = await step.handle.ask("list_unit_stats", lambda: able.list_unit_stats(match))
    return {one.id: one.memory_working_set_bytes or 0 for one in found}


def _check_use(used: int, wanted: ResourceRequirements) -> None:
    """Raise Conflict if the unit uses more than its new limit.

    The kernel would kill it (cgroup v2) or refuse the limit (v1).
    """
    limit = to_bytes(wanted.limits["memory"])
    if used >= limit:
        raise Conflict(f"attempting to set memory limit ({limit}) below current usage ({used})")


def _given(overrides: G, action: ResizePod) -> G:
    return replace(overrides, granted_pod=action.resources)


def _with(overrides: G, action: ResizeContainer) -> G:
    given = Granted(unit_id=action.unit_id, resources=action.resources, restart=action.restart)
    return replace(overrides, granted={**overrides.granted, action.name: given})


def failed(
    step: StepContext, name: str, what: str, error: KubeletxError, otherwise: str, *, may_heal: bool = True
) -> Result:
    """Result of a failed resize. `what`: container or machine. `otherwise`: reason if the error has none of its own."""
    uncount(step, error)
    before = step.facts.unit(name).resize_failure
    reason = _tell(step, f"{what} {name}", error, before, container=name, otherwise=otherwise)
    return after_error(error, step.now(), results.ResizeFailed(name, reason, str(error), may_heal=may_heal))


def _tell(
    step: StepContext,
    what: str,
    error: KubeletxError,
    before: ActionFailure | None,
    *,
    container: str = "",
    otherwise: str = Event.RESIZE_ERROR,
) -> str:
    """Log the failure, record an event if the error is new, and return the reason of the failure."""
    reason = error.reason if error.reason in (DEFERRED, INFEASIBLE) else otherwise
    if not is_silence(error) and (before is None or before.message != str(error)):
        event = {DEFERRED: Event.RESIZE_DEFERRED, INFEASIBLE: Event.RESIZE_INFEASIBLE}.get(reason, reason)
        step.warning(event, f"Cannot resize {what}: {error}", container=container)
    level_of(error, log)("Failed to resize", pod=step.desired.ref, container=container, err=str(error))
    return reason
