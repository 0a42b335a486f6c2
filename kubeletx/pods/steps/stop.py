"""Steps that evacuate a pod, stop a unit (container or machine), read the termination message of an ended one, and remove it."""

from __future__ import annotations

import asyncio
import contextlib

import structlog

from kubeletx.api import KubeletxError, NotFound, Unavailable
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Container

from ..model import results
from ..model.actions import Evacuate, ReadMessage, RemoveUnit, StopUnit
from ..model.results import Result
from ..model.roles import find_unit
from ..probes.lifecycle_hooks import stop_seconds
from .context import StepContext
from .standby import thaw_before_stop

log = structlog.get_logger(__name__)


async def evacuate(step: StepContext, action: Evacuate) -> Result:
    """Let every room that needs it end what clients use in the pod."""
    began = step.now().mono
    needed = [hook for hook in step.deps.evacuations if hook.is_needed(step.uid)]
    await asyncio.gather(*(hook.run(step.uid, action.deadline) for hook in needed))
    seconds = round(step.now().mono - began, 3)
    log.info("Evacuated pod", pod=step.desired.ref, elapsed_seconds=seconds)
    return results.Evacuated()


async def stop_unit(step: StepContext, action: StopUnit) -> Result:
    """Run the preStop hook of the action's container or machine, then stop it.

    The grace period begins with the hook. If it is 0, the hook is skipped.
    """
    handle, name = step.handle, action.name
    began = step.now().mono
    step.normal(Event.KILLING, action.message or f"Stopping container {name}", container=name)
    try:
        await thaw_before_stop(step, action.unit_id, action.grace_seconds)
        if action.run_pre_stop and action.grace_seconds > 0:
            await _run_pre_stop(step, action)
        # The hook and the thaw have used a part of the grace period.
        grace = stop_seconds(action.grace_seconds, step.now().mono - began)
        await handle.stop_unit(action.unit_id, grace)
        handle.note_unit(await handle.unit_status(action.unit_id))
    except NotFound:
        return results.LookNeeded()
    except KubeletxError as error:
        if not isinstance(error, Unavailable):  # the event is about the pod, as in the kubelet
            step.warning(Event.FAILED_KILL_POD, f"error killing container {name}: {error}")
        step.call_failed(error, "Failed to stop container", "", "", container=name)
        return results.StopFailed("KillContainerError", str(error))
    log.info(
        "Stopped container",
        pod=step.desired.ref,
        container=name,
        reason=action.reason,
        elapsed_seconds=round(step.now().mono - began, 3),
    )
    return results.Killed(name, "" if action.reason == "Killing" else action.reason)


async def remove_unit(step: StepContext, action: RemoveUnit) -> Result:
    """Remove a dead container or machine from its runtime, and its log file."""
    try:
        # Removed by another client; the log below is the agent's own and must still be removed.
        with contextlib.suppress(NotFound):
            await step.handle.remove_unit(action.unit_id)
        await step.deps.directories.remove_log(step.pod, action.name, action.attempt)
    except KubeletxError as error:
        text = f"error removing container {action.name}: {error}"
        step.call_failed(
            error, "Failed to remove container", Event.FAILED_KILL_POD, text, container=action.name
        )
        return results.StopFailed("RemoveContainerError", str(error))
    return results.Changed()


async def _run_pre_stop(step: StepContext, action: StopUnit) -> None:
    container = find_unit(step.pod, action.name)
    lifecycle = container.lifecycle if isinstance(container, Container) else None
    if not isinstance(container, Container) or lifecycle is None or lifecycle.pre_stop is None:
        return
    if not await _begins_now(step, action):
        return
    error = await step.run_hook(lifecycle.pre_stop, container, action, seconds=float(action.grace_seconds))
    if error:
        # The event omits the error: a hook's output may contain secrets, and more people can read events than pods.
        step.warning(Event.FAILED_PRE_STOP_HOOK, "PreStopHook failed", container=action.name)


async def _begins_now(step: StepContext, action: StopUnit) -> bool:
    """Return True if the preStop hook of this unit has not begun yet, and record in a marker file that it begins.

    So the hook runs only once, even if the stop is repeated after a crash (docs/architecture.md, rule 8).
    """
    snapshot = step.facts.snapshot
    attempts = [u.attempt for u in snapshot.units if u.id == action.unit_id] if snapshot is not None else []
    what = f"pre-stop-{action.name}-{attempts[0] if attempts else 0}"
    try:
        return await step.deps.directories.begin_once(step.pod, what)
    except KubeletxError:  # if the marker cannot be written, a repeated hook is better than none
        return True


async def read_message(step: StepContext, action: ReadMessage) -> Result:
    """Read the termination message of the action's unit. An empty message is stored, too, so it is read only once."""
    message = ""
    container = find_unit(step.pod, action.name)
    snapshot = step.facts.snapshot
    status = snapshot.status_of(action.unit_id) if snapshot is not None else None
    if isinstance(container, Container):
        failed = status is None or status.exit_code != 0
        try:
            message = await step.deps.directories.read_message(
                step.pod, container, action.attempt, failed=failed
            )
        except KubeletxError as error:
            message = f"Error on reading termination message: {error}"
    return results.MessageRead(action.name, action.unit_id, message)
