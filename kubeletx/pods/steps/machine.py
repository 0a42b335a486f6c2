"""Steps for machines: change the power state, the network interfaces and the size of one."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import (
    InvalidPod,
    KubeletxError,
    NotFound,
    SupportsMachine,
    SupportsNics,
    SupportsResize,
    Unsupported,
)
from kubeletx.api.names import RUNTIME_UNSUPPORTED, Event

from ..model.results import LookNeeded, Resized, Result
from ..model.sizes import INFEASIBLE
from ..workloads.machine import results
from ..workloads.machine.actions import AttachNic, DetachNic, ListNics, ResizeUnit, SetPower
from ..workloads.machine.hardware import sized_pod
from ..workloads.machine.power import PowerStep
from ..workloads.machine.spec import build_nic
from . import resize
from .context import StepContext, after_error, require

log = structlog.get_logger(__name__)

_SAYS = {
    PowerStep.PAUSE: (Event.MACHINE_PAUSED, "Paused"),
    PowerStep.RESUME: (Event.MACHINE_RESUMED, "Resumed"),
    PowerStep.SUSPEND: (Event.MACHINE_SUSPENDED, "Suspended"),
    PowerStep.POWER_OFF: (Event.MACHINE_OFF, "Switched off"),
    PowerStep.START: (Event.STARTED, "Switched on"),
}


async def set_power(step: StepContext, action: SetPower) -> Result:
    """Change the power state of the action's machine by one call to its runtime.

    A switch-off is first stored in the pod's overrides, so that the end of the machine does not count as a failure.
    """
    wanted, handle, name = PowerStep(action.step), step.handle, action.name
    began = step.now().mono
    try:
        if wanted is PowerStep.POWER_OFF:
            await step.amend(lambda overrides: replace(overrides, off_unit=action.unit_id))
        await _call(step, action, wanted)
        handle.note_unit(await handle.unit_status(action.unit_id))
        if wanted is PowerStep.START:
            await step.amend(lambda overrides: replace(overrides, off_unit=""))
    except NotFound:
        return LookNeeded()
    except KubeletxError as error:
        text = f"Failed to {wanted.value.replace('_', ' ')} {name}: {error}"
        step.call_failed(error, "Failed to change power", Event.FAILED_POWER, text, container=name)
        reason = error.reason or Event.FAILED_POWER
        return after_error(error, step.now(), results.PowerFailed(name, reason, str(error)))
    reason, said = _SAYS[wanted]
    step.normal(reason, f"{said} machine {name}", container=name)
    log.info(
        "Changed power",
        pod=step.desired.ref,
        container=name,
        step=wanted.value,
        elapsed_seconds=round(step.now().mono - began, 3),
    )
    return results.PowerSet(name)


async def _call(step: StepContext, action: SetPower, wanted: PowerStep) -> None:
    handle, unit_id = step.handle, action.unit_id
    if wanted is PowerStep.START:
        await handle.start_unit(unit_id)
        return
    machine: SupportsMachine = require(handle, SupportsMachine, "change the power of its units")
    if wanted is PowerStep.POWER_OFF:
        grace = float(action.grace_seconds)
        await handle.change(
            "power_off", lambda: machine.power_off(unit_id, grace), more_seconds=grace, unit_id=unit_id
        )
    else:
        verb = {
            PowerStep.PAUSE: machine.pause,
            PowerStep.RESUME: machine.resume,
            PowerStep.SUSPEND: machine.suspend,
        }[wanted]
        changes = unit_id if wanted is not PowerStep.SUSPEND else None
        await handle.change(wanted.value, lambda: verb(unit_id), unit_id=unit_id, changes=changes)


async def list_nics(step: StepContext, action: ListNics) -> Result:
    """Query the runtime for the machine's network interfaces."""
    try:
        listed = await step.handle.ask("list_nics", lambda: _nics(step).list_nics(action.unit_id))
    except KubeletxError as error:
        step.call_failed(error, "Failed to list interfaces", "", "")
        return results.NicsUnlisted(action.name, Event.FAILED_NIC, str(error))
    return results.NicsSeen(action.name, action.unit_id, tuple(listed))


async def attach_nic(step: StepContext, action: AttachNic) -> Result:
    """Attach a network interface to the machine.

    A failure, such as a network port that does not exist yet, is retried unless the runtime does not support the
    interface.
    """
    nic = build_nic(action.nic)
    try:
        await step.handle.change("attach_nic", lambda: _nics(step).attach_nic(action.unit_id, nic))
    except KubeletxError as error:
        return _nic_failed(step, action.name, nic.name, "attach", error)
    step.normal(Event.NIC_ATTACHED, f"Attached interface {nic.name} to {action.name}", container=action.name)
    return results.NicsChanged(action.name, nic.name)


async def detach_nic(step: StepContext, action: DetachNic) -> Result:
    """Request that a network interface is detached; the guest has to release it, so this may complete later."""
    try:
        await step.handle.change(
            "detach_nic", lambda: _nics(step).detach_nic(action.unit_id, action.nic_name)
        )
    except KubeletxError as error:
        return _nic_failed(step, action.name, action.nic_name, "detach", error)
    step.normal(
        Event.NIC_DETACHED, f"Detached interface {action.nic_name} from {action.name}", container=action.name
    )
    return results.NicsChanged(action.name, action.nic_name)


async def resize_unit(step: StepContext, action: ResizeUnit) -> Result:
    """Request the new size of the machine from its runtime, and store the request in the pod's overrides.

    The machine's status shows later which size the runtime granted.
    """
    handle = step.handle
    try:
        able: SupportsResize = require(handle, SupportsResize, "resize its units")
        resize.count(step, sized_pod(step.desired, step.facts))
        resources = step.specs.resources(step.pod, step.facts, action.name)
        await handle.change("update_resources", lambda: able.update_resources(action.unit_id, resources))
        await step.amend(
            lambda overrides: replace(overrides, size_asked=action.size, size_unit=action.unit_id)
        )
        handle.note_unit(await handle.unit_status(action.unit_id))
    except KubeletxError as error:
        never = isinstance(error, (Unsupported, InvalidPod))
        otherwise = INFEASIBLE if never else Event.FAILED_RESIZE
        return resize.failed(step, action.name, "machine", error, otherwise, may_heal=not never)
    step.normal(
        Event.MACHINE_RESIZED, f"Asked machine {action.name} to become {action.size}", container=action.name
    )
    return Resized(action.name)


def _nics(step: StepContext) -> SupportsNics:
    nics: SupportsNics = require(step.handle, SupportsNics, "change interfaces")
    return nics


def _nic_failed(step: StepContext, name: str, nic: str, verb: str, error: KubeletxError) -> Result:
    is_refused = isinstance(error, InvalidPod) and error.reason == RUNTIME_UNSUPPORTED
    may_heal = not (is_refused or isinstance(error, Unsupported))
    again = "" if may_heal else "; it is not tried again before the pod or the order changes"
    text = f"Failed to {verb} interface {nic}: {error}{again}"
    step.warning(Event.FAILED_NIC, text, container=name)
    step.call_failed(error, "Failed to change interfaces", "", "", interface=nic, verb=verb)
    failed = results.NicFailed(name, nic, Event.FAILED_NIC, str(error), may_heal=may_heal)
    return after_error(error, step.now(), failed)
