"""Step that changes the power state of a machine: pause, resume, suspend, switch off or on."""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import KubeletxError, NotFound, SupportsMachine, Unsupported
from kubeletx.api.names import Event

from ...call_errors import after_error, is_silence, level_of
from ...model.results import LookNeeded, Result
from ..step import WorkloadStep
from . import results
from .actions import SetPower
from .power import PowerStep

log = structlog.get_logger(__name__)

_SAYS = {
    PowerStep.PAUSE: (Event.MACHINE_PAUSED, "Paused"),
    PowerStep.RESUME: (Event.MACHINE_RESUMED, "Resumed"),
    PowerStep.SUSPEND: (Event.MACHINE_SUSPENDED, "Suspended"),
    PowerStep.POWER_OFF: (Event.MACHINE_OFF, "Switched off"),
    PowerStep.START: (Event.STARTED, "Switched on"),
}


async def set_power(step: WorkloadStep, action: SetPower) -> Result:
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
        if not is_silence(error):
            text = f"Failed to {wanted.value.replace('_', ' ')} {name}: {error}"
            step.warning(Event.FAILED_POWER, text, container=name)
        level_of(error, log)("Failed to change power", pod=step.desired.ref, container=name, err=str(error))
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


async def _call(step: WorkloadStep, action: SetPower, wanted: PowerStep) -> None:
    handle, unit_id = step.handle, action.unit_id
    if wanted is PowerStep.START:
        await handle.start_unit(unit_id)
        return
    machine: SupportsMachine | None = handle.capability(SupportsMachine)
    if machine is None:
        raise Unsupported(f"runtime {handle.name} cannot change the power of its units")
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
