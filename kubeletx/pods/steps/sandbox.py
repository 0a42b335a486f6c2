"""Creates, stops and removes a pod's sandbox; reads the pod's state from its runtime."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import Internal, KubeletxError, NotFound, SandboxId, SandboxSpec
from kubeletx.api.names import Event
from kubeletx.runtimes.handles.handle import RuntimeHandle

from ..model import results
from ..model.actions import StopSandbox
from ..model.results import Result
from ..plan.progress import is_blind
from ..specs.sandbox import sandbox_warnings
from .context import StepContext, after_error

log = structlog.get_logger(__name__)


async def create_sandbox(step: StepContext, attempt: int) -> Result:
    """Create the pod's sandbox and read its status. It is a failure if the sandbox lacks an address it should have."""
    handle = step.handle
    began = step.now()
    step.deps.counters.started_pods += 1
    try:
        spec = await step.specs.sandbox(step.desired, handle, attempt)
        sandbox_id = await _run_sandbox(step, handle, spec)
        status = await handle.sandbox_status(sandbox_id)
        handle.note_sandbox(status)
        if step.facts.expects_address and not status.host_network and not status.ips:
            raise Internal(  # the next plan replaces the sandbox, with back-off
                f"sandbox {sandbox_id}: runtime {handle.name} reported no IP address; see the runtime's log and its CNI "
                "configuration"
            )
    except KubeletxError as error:
        step.deps.counters.started_pods_errors += 1
        text = f"Failed to create pod sandbox: {error}"
        step.call_failed(
            error, "Failed to create sandbox", Event.FAILED_CREATE_SANDBOX, text, runtime=handle.name
        )
        failed = results.SandboxFailed(error.reason or "CreatePodSandboxError", str(error))
        return after_error(error, step.now(), failed)
    # After the create: a failed one is repeated, and each repetition would record the same warnings.
    for warning in sandbox_warnings(step.pod, step.deps.node):
        step.warning(warning.reason, warning.message)
    if attempt > 0:
        step.normal(Event.SANDBOX_CHANGED, "Pod sandbox changed, it will be killed and re-created.")
    log.info(
        "Created sandbox",
        pod=step.desired.ref,
        runtime=handle.name,
        sandbox_id=sandbox_id,
        attempt=attempt,
        elapsed_seconds=round(step.now().mono - began.mono, 3),
    )
    return results.SandboxMade()


async def _run_sandbox(step: StepContext, handle: RuntimeHandle, spec: SandboxSpec) -> SandboxId:
    """Create the sandbox on its runtime; record duration and failures in the metrics."""
    counters, began = step.deps.counters, step.now().mono
    try:
        return await handle.create_sandbox(spec)
    except KubeletxError:
        counters.run_podsandbox_errors[spec.handler] += 1
        raise
    finally:
        counters.run_podsandbox.add(step.now().mono - began, spec.handler)


async def stop_sandbox(step: StepContext, action: StopSandbox) -> Result:
    """Stop the sandbox on its runtime: end all units in it and release its network."""
    handle, sandbox_id = step.handle, action.sandbox_id
    if action.message:
        step.normal(Event.KILLING, action.message)
    try:
        await handle.stop_sandbox(sandbox_id)
        handle.note_sandbox(await handle.sandbox_status(sandbox_id))
    except NotFound:  # removed by another client
        return results.LookNeeded()
    except KubeletxError as error:
        return _stop_failed(step, error)
    return results.Changed()


async def remove_sandbox(step: StepContext, sandbox_id: SandboxId) -> Result:
    """Remove the sandbox and all units in it from its runtime."""
    handle = step.handle
    try:
        await handle.remove_sandbox(sandbox_id)
    except NotFound:
        return results.LookNeeded()
    except KubeletxError as error:
        return _stop_failed(step, error)
    return results.Changed()


def _stop_failed(step: StepContext, error: KubeletxError) -> Result:
    step.call_failed(error, "Failed to stop sandbox", Event.FAILED_KILL_POD, f"error killing pod: {error}")
    return results.StopFailed("KillPodSandboxError", str(error))


async def look(step: StepContext) -> Result:
    """Read the pod's state from its runtime. The runtime's handle keeps the resulting `PodSnapshot`.

    If the runtime does not answer, or the answer lacks details of a unit, the result makes the worker repeat this.
    """
    try:
        snapshot = await step.handle.look(step.uid)
    except KubeletxError:
        return results.LookFailed()
    # A runtime that lists a unit without its details is queried again, but not at once.
    if is_blind(replace(step.facts, snapshot=snapshot)):
        return results.LookFailed(answered=True)
    return results.Nothing()
