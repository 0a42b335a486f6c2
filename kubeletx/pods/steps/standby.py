"""Steps that freeze, hibernate or thaw one unit (container or machine), and that thaw a frozen one before its stop."""

from __future__ import annotations

import asyncio
from typing import Final

import structlog
from msgspec.structs import replace

from kubeletx.api import (
    KubeletxError,
    NotFound,
    SupportsStandby,
    SupportsStats,
    TimedOut,
    Unavailable,
    UnitId,
    names,
)
from kubeletx.api.names import Event

from ..model.results import LookNeeded, Result
from ..model.roles import sidecars
from ..workloads.power import RESTING
from ..workloads.standby import results
from ..workloads.standby.actions import SetStandby, StandbyStep
from ..workloads.standby.plan import STATES
from ..workloads.table import workload_of
from .context import StepContext, after_error, require

log = structlog.get_logger(__name__)

_SAYS: Final = {
    StandbyStep.FREEZE: (Event.STANDBY, "Froze"),
    StandbyStep.HIBERNATE: (Event.HIBERNATED, "Hibernated"),
    StandbyStep.THAW: (Event.ACTIVATED, "Thawed"),
}
STATS_SECONDS = 2.0
"""Deadline of one reading of a container's memory, before and after a hibernation."""


async def set_standby(step: StepContext, action: SetStandby) -> Result:
    """Freeze, hibernate or thaw the action's unit, and read its new status from the runtime."""
    wanted, name = StandbyStep(action.step), action.name
    # Before the clock starts: the measurement is not a part of the duration that is reported.
    before = await _memory(step, action.unit_id) if wanted is StandbyStep.HIBERNATE else None
    began = step.now().mono
    try:
        await _call(step, wanted, action.unit_id, seconds=_deadline(step, wanted))
        ended = step.now().mono
        await _note(step, wanted, action.unit_id)
    except NotFound:
        return LookNeeded()
    except KubeletxError as error:
        text = f"Failed to {wanted.value} {name}: {error}"
        step.call_failed(error, "Failed to change standby", Event.FAILED_POWER, text, container=name)
        return after_error(error, step.now(), results.standby_failed(action, error))
    after = await _memory(step, action.unit_id) if before is not None else None
    if before is not None and after is None and step.facts.own.has_own_kernel:
        after = 0  # its emulator has ended and cannot be measured
    seconds = ended - began
    memory = (before, after) if before is not None and after is not None else None
    step.deps.counters.standby.add(seconds, action.step)
    if memory is not None:
        step.deps.counters.standby_freed_bytes += max(memory[0] - memory[1], 0)
    reason, said = _SAYS[wanted]
    step.normal(reason, f"{said} {step.facts.own.noun} {name} in {seconds:.3f}s", container=name)
    log.debug(
        "Changed standby",
        pod=step.desired.ref,
        container=name,
        step=wanted.value,
        elapsed_seconds=round(seconds, 3),
    )
    return results.StandbySet(name, action.step, began, ended, memory)


async def thaw_before_stop(step: StepContext, unit_id: UnitId, grace_seconds: float) -> None:
    """If the unit is frozen or hibernated, thaw it, after the frozen sidecars of the pod that it may need.

    Without this, a preStop hook in the frozen container would hang for the whole grace period. If a thaw fails, an
    event has the reason, and the stop is not delayed. A machine that paused itself is not thawed. A machine without
    grace period is not thawed either, since it is switched off; a container is, since a kill signal needs thawed
    processes.
    """
    snapshot, workload = step.facts.snapshot, workload_of(step.facts)
    if snapshot is None or not workload.can_standby(step.facts):
        return
    is_machine = step.facts.own.has_own_kernel
    if is_machine and grace_seconds <= 0:
        return
    seconds = step.deps.thaw_seconds
    if is_machine:
        seconds = max(seconds, grace_seconds)
    resting = [
        unit
        for unit in snapshot.units
        if unit.state in RESTING and not workload.rest_reason(step.facts, unit)
    ]
    if not any(unit.id == unit_id for unit in resting):
        return
    order = [
        unit
        for sidecar in sidecars(step.pod)
        for unit in resting
        if unit.name == sidecar.name and unit.id != unit_id
    ]
    order += [unit for unit in resting if unit.id == unit_id]
    for unit in order:
        try:
            await _call(step, StandbyStep.THAW, unit.id, seconds=seconds)
        except KubeletxError as error:
            log.warning("Failed to thaw before a stop", pod=step.desired.ref, unit=unit.id, err=str(error))
            if not isinstance(error, Unavailable):
                text = f"Failed to thaw {unit.name} before a stop: {error}"
                step.warning(Event.FAILED_POWER, text, container=unit.name)


async def _note(step: StepContext, wanted: StandbyStep, unit_id: UnitId) -> None:
    """Store the unit's new status; if the runtime does not answer, the last one with the state that the call reached.

    The state is in the kernel's freezer, which changes while containerd is stopped, too.
    """
    handle = step.handle
    try:
        status = await handle.unit_status(unit_id, after_switch=True)
    except (TimedOut, Unavailable):
        snapshot = handle.snapshot(step.desired.uid)
        known = snapshot.status_of(unit_id) if snapshot is not None else None
        if known is None:
            raise
        status = replace(known, summary=replace(known.summary, state=STATES[wanted.value]))
    handle.note_unit(status)


def _deadline(step: StepContext, wanted: StandbyStep) -> float | None:
    """Return the seconds after which the thaw of a container in a pod that ends is given up; None for other calls."""
    is_ending = step.desired.deletion is not None and not step.facts.own.has_own_kernel
    return step.deps.thaw_seconds if is_ending and wanted is StandbyStep.THAW else None


async def _memory(step: StepContext, unit_id: UnitId) -> int | None:
    """Return the memory of the unit in bytes; None if the runtime does not measure it or does not answer in time."""
    handle = step.handle
    stats: SupportsStats | None = handle.capability(SupportsStats)
    if stats is None:
        return None
    match = {names.POD_UID: str(step.desired.uid)}
    try:
        units = await handle.ask(
            "list_unit_stats", lambda: stats.list_unit_stats(match), seconds=STATS_SECONDS
        )
    except KubeletxError as error:
        log.debug("Failed to read the memory of a container", pod=step.desired.ref, err=str(error))
        return None
    measured = next((unit for unit in units if unit.id == unit_id), None)
    if measured is None or measured.memory_usage_bytes is not None:
        return measured.memory_usage_bytes if measured is not None else None
    return measured.memory_working_set_bytes


async def _call(step: StepContext, wanted: StandbyStep, unit_id: UnitId, *, seconds: float | None) -> None:
    """Make the call. Raises TimedOut after `seconds`; None means the deadline of all changing calls."""
    handle = step.handle
    able: SupportsStandby = require(handle, SupportsStandby, "freeze its units")
    verb = {
        StandbyStep.FREEZE: able.freeze,
        StandbyStep.HIBERNATE: able.hibernate,
        StandbyStep.THAW: able.thaw,
    }[wanted]
    # A machine's hibernation ends its emulator, which causes another event than Changed; it is not expected here.
    ends = wanted is StandbyStep.HIBERNATE and step.facts.own.has_own_kernel
    is_switch = wanted is not StandbyStep.HIBERNATE  # a hibernation takes up to seconds
    try:
        async with asyncio.timeout(seconds):
            await handle.change(
                wanted.value,
                lambda: verb(unit_id),
                unit_id=unit_id,
                changes=None if ends else unit_id,
                is_switch=is_switch,
            )
    except TimeoutError as error:
        raise TimedOut(
            f"runtime {handle.name}: {wanted.value} did not return within {seconds:g} s"
        ) from error
