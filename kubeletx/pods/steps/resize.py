"""Resizes a running container or pod: reserve the resources, change the pod's cgroup, then the containers' cgroups."""

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
from ..model.facts import ActionFailure, DesiredPod, Granted, Grants, PodFacts
from ..model.phase import FINAL
from ..model.results import Result
from ..model.sizes import INFEASIBLE, lowers_memory
from ..plan.resize_container import DEFERRED, granted, granted_pod, largest_pod
from ..plan.resize_pod import pod_granted, units_with_pod_limit, with_pod_granted
from .context import StepContext, after_error

log = structlog.get_logger(__name__)

G = TypeVar("G", bound=Grants)


async def resize_container(step: StepContext, action: ResizeContainer) -> Result:
    """Resize one running container in place, or store the new size for its restart if the action says so.

    A size that does not fit on the node now is retried later.
    """
    try:
        count(step, step.pod)
        await step.specs.limit_pod(largest_pod(step.pod, step.facts))
        if not action.restart:
            unit = step.facts.newest(action.name)
            has = granted(unit, step.facts) if unit is not None else None
            if lowers_memory(has, action.resources):
                _check_use((await _used(step)).get(action.unit_id, 0), action.resources)
            # A container without own limits uses the pod's limits. These change only in `resize_pod`, which
            # checks the memory in use.
            await _update(step, with_pod_granted(step.pod, step.facts), action.name, action.unit_id)
        # After the call: a size that the runtime refused is not stored; after a crash in between the call is repeated.
        await step.overrides.amend(step.worker, lambda overrides: _with(overrides, action, step.facts))
        if not action.restart:  # other containers that must still shrink keep their larger limits
            await step.specs.limit_pod(largest_pod(step.pod, step.facts))
    except KubeletxError as error:
        return failed(step, action.name, "container", error, Event.RESIZE_ERROR)
    if not action.restart:
        text = f"Resized container {action.name} in place"
        step.normal(Event.RESIZE_COMPLETED, text, container=action.name)
    return results.Resized(action.name)


async def resize_pod(step: StepContext, action: ResizePod) -> Result:
    """Change the pod-level resources and the limits of containers without own limits; then store the grant."""
    specs = step.specs
    try:
        count(step, step.pod)
        if lowers_memory(pod_granted(step.pod, step.facts), action.resources):
            _check_use(sum((await _used(step)).values()), action.resources)
        await specs.limit_pod(largest_pod(step.pod, step.facts))
        for unit in units_with_pod_limit(step.pod, step.facts):
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
    """Reserve the resources of this version of the pod on the node, in place of its present reservation.

    Raises Conflict, and changes nothing, if they do not fit: reason Deferred if they may fit later, Infeasible if they
    can never fit.
    """
    admission, source = step.deps.admission, step.desired.traits
    refusal = admission.change(pod, step.handle.traits, source)
    if refusal is not None:
        fits = admission.would_ever_fit(pod, step.handle.traits, source)
        raise Conflict(refusal.message, reason=DEFERRED if fits else INFEASIBLE)


def uncount(step: StepContext, error: KubeletxError) -> None:
    """Undo the reservation of `count` if `error` means that a retry of the failed resize cannot succeed.

    The pod's reservation is then its granted resources again.
    """
    # After other errors the resize is retried, and its reservation must not go to another pod meanwhile.
    if isinstance(error, Unsupported | InvalidPod):
        count_granted(step.deps, step.facts, step.desired)


def count_granted(deps: PodDependencies, facts: PodFacts, desired: DesiredPod) -> None:
    """Set the pod's reservation on the node to its granted resources, not to its changed spec.

    Nothing is done for a pod that has ended or has no runtime.
    """
    runtime = facts.runtime
    status = deps.board.statuses.get(desired.uid)
    if runtime is not None and (status is None or status.phase not in FINAL):
        pod = granted_pod(desired.pod, facts)
        handle = deps.registry.find(runtime)
        deps.admission.recount(pod, handle.traits if handle is not None else None, desired.traits)


async def _update(step: StepContext, pod: Pod, name: str, unit_id: UnitId) -> None:
    handle = step.handle
    able: SupportsResize | None = handle.capability(SupportsResize)
    if able is None:
        raise Unsupported(f"runtime {handle.name} cannot resize its units", reason=INFEASIBLE)
    resources = step.specs.resources(pod, step.facts, name)
    await handle.change("update_resources", lambda: able.update_resources(unit_id, resources))


async def _used(step: StepContext) -> dict[UnitId, int]:
    """Return the memory in bytes that each container of the pod uses; empty if the runtime has no statistics."""
    able: SupportsStats | None = step.handle.capability(SupportsStats)
    if able is None:
        return {}
    match = {POD_UID: str(step.uid)}
    listed = await step.handle.ask("list_unit_stats", lambda: able.list_unit_stats(match))
    return {unit_stats.id: unit_stats.memory_working_set_bytes or 0 for unit_stats in listed}


def _check_use(used: int, wanted: ResourceRequirements) -> None:
    """Raise Conflict if the used memory in bytes is not below the memory limit in `wanted`.

    The kernel would kill the container (cgroup v2) or refuse the limit (cgroup v1).
    """
    limit = to_bytes(wanted.limits["memory"])
    if used >= limit:
        raise Conflict(f"attempting to set memory limit ({limit}) below current usage ({used})")


def _given(overrides: G, action: ResizePod) -> G:
    return replace(overrides, granted_pod=action.resources)


def _with(overrides: G, action: ResizeContainer, facts: PodFacts) -> G:
    unit = facts.newest(action.name) if action.restart else None
    given = Granted(
        unit_id=action.unit_id,
        resources=action.resources,
        restart=action.restart,
        before=granted(unit, facts) if unit is not None else None,
    )
    return replace(overrides, granted={**overrides.granted, action.name: given})


def failed(
    step: StepContext, name: str, what: str, error: KubeletxError, otherwise: str, *, may_heal: bool = True
) -> Result:
    """Log a failed resize, record an event if the error is new, and return the result.

    `name`: name of the container or machine. `what`: the word ``container`` or ``machine``. `otherwise`: reason to use
    unless the error's reason is Deferred or Infeasible. `may_heal` False: retry only after the pod was edited.
    """
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
    """Log a failed resize, record an event if the error is new, and return the reason of the failure.

    `what`: the resized object in messages, such as ``container web``. `before`: the previous failure of this resize, if
    any. `otherwise`: reason to return unless the error's reason is Deferred or Infeasible.
    """
    reason = error.reason if error.reason in (DEFERRED, INFEASIBLE) else otherwise
    event = {DEFERRED: Event.RESIZE_DEFERRED, INFEASIBLE: Event.RESIZE_INFEASIBLE}.get(reason, reason)
    if before is not None and before.message == str(error):
        event = ""
    step.call_failed(error, "Failed to resize", event, f"Cannot resize {what}: {error}", container=container)
    return reason
