"""Creates and starts one unit (container or machine) in the pod's sandbox."""

from __future__ import annotations

import structlog

from kubeletx.api import InvalidPod, KubeletxError, UnitId
from kubeletx.api.names import Event

from ..counters import container_type
from ..model import results
from ..model.actions import StartUnit
from ..model.results import Result
from ..model.roles import find_unit
from .context import StepContext, after_error, is_silence, level_of

log = structlog.get_logger(__name__)


async def start_unit(step: StepContext, action: StartUnit) -> Result:
    """Create and start the action's container or machine, and update its status in the runtime's handle.

    A repeated call with the same attempt number finds the one that the first call created.
    """
    handle, name = step.handle, action.name
    container = find_unit(step.pod, name)
    unit_id: UnitId | None = None
    step.deps.counters.started_containers[container_type(step.pod, name)] += 1
    try:
        spec = await step.specs.unit(step.desired, step.facts, handle, action)
        sandbox = await step.specs.sandbox(step.desired, handle, _sandbox_attempt(step))
        if step.desired.deletion is not None:
            return results.Nothing()
        unit_id = await handle.create_unit(action.sandbox_id, spec, sandbox)
        step.normal(Event.CREATED, "Container created", container=name)
        await handle.start_unit(unit_id)
        handle.note_unit(await handle.unit_status(unit_id))
    except KubeletxError as error:
        return await _failed(step, name, unit_id, error)
    step.deps.on_unit_started()
    await step.deps.directories.link_log(step.pod, name, action.attempt, unit_id)
    step.normal(Event.STARTED, "Container started", container=name)
    log.info("Started container", pod=step.desired.ref, container=name, runtime=handle.name)
    lifecycle = container.lifecycle if container is not None else None
    has_hook = lifecycle is not None and lifecycle.post_start is not None
    return results.UnitStarted(name, unit_id, has_hook=has_hook)


def _sandbox_attempt(step: StepContext) -> int:
    snapshot = step.facts.snapshot
    return snapshot.sandboxes[0].attempt if snapshot is not None and snapshot.sandboxes else 0


async def _failed(step: StepContext, name: str, unit_id: UnitId | None, error: KubeletxError) -> Result:
    created = unit_id is not None
    reason = error.reason
    if reason is None:
        is_config = isinstance(error, InvalidPod)
        reason = (
            "CreateContainerConfigError"
            if is_config
            else ("RunContainerError" if created else "CreateContainerError")
        )
    step.deps.counters.started_containers_errors[container_type(step.pod, name), reason] += 1
    if not is_silence(error):
        step.warning(Event.FAILED, f"Error: {error}", container=name)
    level_of(error, log)("Failed to start container", pod=step.desired.ref, container=name, err=str(error))
    if unit_id is not None:
        try:
            step.handle.note_unit(await step.handle.unit_status(unit_id))
        except KubeletxError as second:
            return after_error(second, step.now(), results.UnitFailed(name, reason, str(error), created=True))
    return after_error(error, step.now(), results.UnitFailed(name, reason, str(error), created=created))
