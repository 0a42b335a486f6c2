"""Give a running container other resources: counted first, then the pod's cgroup, then the container's own."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import Conflict, KubeletxError, SupportsResize, Unsupported
from kubeletx.api.names import Event

from .. import changes
from ..actions import ResizeContainer
from ..changes import Change
from ..orders import Granted, Orders
from ..resize import DEFERRED, INFEASIBLE, largest_pod
from .context import StepContext, after_error, is_silence, level_of
from .orders import amend

log = structlog.get_logger(__name__)


async def resize_container(step: StepContext, action: ResizeContainer) -> Change:
    """What does not fit now is asked again later; what was granted is written down after it was given."""
    try:
        _count(step)
        await step.services.specs.limit_pod(largest_pod(step.pod, step.facts))
        if not action.restart:
            await _update(step, action)
        await amend(step.services, step.worker, lambda orders: _with(orders, action))
        if not action.restart:
            await step.services.specs.limit_pod(step.pod)
    except KubeletxError as error:
        return _failed(step, action, error)
    if not action.restart:
        text = f"Resized container {action.name} in place"
        step.normal(Event.RESIZE_COMPLETED, text, container=action.name)
    return changes.resized(action.name)


def _count(step: StepContext) -> None:
    """Raises Conflict, with the reason of the pod's condition, when the node has no room for it."""
    admission, source = step.services.admission, step.desired.source
    refusal = admission.change(step.pod, step.handle, source)
    if refusal is not None:
        fits = admission.would_ever_fit(step.pod, step.handle, source)
        raise Conflict(refusal.message, reason=DEFERRED if fits else INFEASIBLE)


async def _update(step: StepContext, action: ResizeContainer) -> None:
    handle = step.handle
    able: SupportsResize | None = handle.capability(SupportsResize)
    if able is None:
        raise Unsupported(f"runtime {handle.name} cannot resize its units", reason=INFEASIBLE)
    resources = step.services.specs.resources(step.desired, step.facts, action.name)
    await handle.change("update_resources", lambda: able.update_resources(action.unit_id, resources))


def _with(orders: Orders, action: ResizeContainer) -> Orders:
    given = Granted(unit_id=action.unit_id, resources=action.resources, restart=action.restart)
    return replace(orders, granted={**orders.granted, action.name: given})


def _failed(step: StepContext, action: ResizeContainer, error: KubeletxError) -> Change:
    reason = error.reason if error.reason in (DEFERRED, INFEASIBLE) else Event.RESIZE_ERROR
    before = step.facts.unit(action.name).resize_failure
    if not is_silence(error) and (before is None or before.message != str(error)):
        event = {DEFERRED: Event.RESIZE_DEFERRED, INFEASIBLE: Event.RESIZE_INFEASIBLE}.get(reason, reason)
        step.warning(event, f"Cannot resize container {action.name}: {error}", container=action.name)
    level_of(error, log)("Failed to resize", pod=step.desired.ref, container=action.name, err=str(error))
    return after_error(error, step.now(), changes.resize_failed(action.name, reason, str(error)))
