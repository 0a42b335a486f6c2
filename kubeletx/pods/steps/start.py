"""Steps that start a unit (container or machine): get its image, create and start it, run its postStart hook."""

from __future__ import annotations

import structlog

from kubeletx.api import InvalidPod, KubeletxError, UnitId
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Container

from ..counters import container_type
from ..model import results
from ..model.actions import EnsureImage, RunPostStart, StartUnit
from ..model.facts import HookState
from ..model.results import Result
from ..model.roles import find_unit, spec_of
from ..unit_images import ImageUser
from .context import StepContext, after_error

log = structlog.get_logger(__name__)


async def ensure_image(step: StepContext, action: EnsureImage) -> Result:
    """Make sure that the image of the action's container is available; pull it if the pull policy requires that."""
    name, own_kernel = action.name, step.facts.own.has_own_kernel
    user = ImageUser(
        container=spec_of(step.pod, name, own_kernel=own_kernel),
        pod=step.pod,
        source=step.desired.source,
        has_own_kernel=own_kernel,
        handle=step.handle,
        events=step.events,
    )
    image = await step.deps.images.ensure(user)
    if image.status is not None:
        return results.ImagePresent(name, image.status)
    return results.ImageFailed(name, image.reason, image.message, image.retry_at)


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
    step.call_failed(error, "Failed to start container", Event.FAILED, f"Error: {error}", container=name)
    if unit_id is not None:
        try:
            step.handle.note_unit(await step.handle.unit_status(unit_id))
        except KubeletxError as second:
            return after_error(second, step.now(), results.UnitFailed(name, reason, str(error), created=True))
    return after_error(error, step.now(), results.UnitFailed(name, reason, str(error), created=created))


async def run_post_start(step: StepContext, action: RunPostStart) -> Result:
    """Run the postStart hook of the action's container, without a deadline, as the kubelet does.

    If the hook fails, the result makes the next plan kill the container.
    """
    container, error = find_unit(step.pod, action.name), ""
    lifecycle = container.lifecycle if isinstance(container, Container) else None
    if isinstance(container, Container) and lifecycle is not None and lifecycle.post_start is not None:
        error = await step.run_hook(lifecycle.post_start, container, action, seconds=None)
    if error:
        # The event omits the error: a hook's output may contain secrets, and more people can read events than pods.
        step.warning(Event.FAILED_POST_START_HOOK, "PostStartHook failed", container=action.name)
        return results.HookNoted(action.name, action.unit_id, HookState.FAILED, error)
    return results.HookNoted(action.name, action.unit_id, HookState.DONE)
