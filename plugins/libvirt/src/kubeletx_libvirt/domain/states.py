"""Translates libvirt's (state, reason) of a domain into the states of units. Pure.

| libvirt | unit |
|---|---|
| running, blocked, in shutdown | running |
| paused: saving, snapshot, migration | running (it continues by itself) |
| paused: starting up (a restart of libvirt would end the machine now) | created, or suspended if it ran before |
| paused by a client or by an I/O error; asleep | paused |
| crashed, or paused by a panic or the watchdog: the emulator is stopped, and the plugin must end it | paused |
| shut off, saved | suspended |
| shut off, never started | created |
| shut off otherwise | exited |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import libvirt

from kubeletx.api import UnitState, names

KILLED = 137
FAILED = 1
UNKNOWN_END = 255

_PASSING = frozenset(
    {
        libvirt.VIR_DOMAIN_PAUSED_MIGRATION,
        libvirt.VIR_DOMAIN_PAUSED_SAVE,
        libvirt.VIR_DOMAIN_PAUSED_DUMP,
        libvirt.VIR_DOMAIN_PAUSED_SNAPSHOT,
        libvirt.VIR_DOMAIN_PAUSED_SHUTTING_DOWN,
    }
)
PANICKED = "GuestPanicked"
CRASHED = "GuestCrashed"
WATCHDOG = "Watchdog"
DISK_ERROR = "DiskError"
DISK_FULL = "DiskFull"
_HELD_REASONS = {libvirt.VIR_DOMAIN_PAUSED_USER: "Paused", libvirt.VIR_DOMAIN_PAUSED_IOERROR: DISK_ERROR}
_FATAL_PAUSES = {
    libvirt.VIR_DOMAIN_PAUSED_WATCHDOG: WATCHDOG,
    libvirt.VIR_DOMAIN_PAUSED_CRASHED: PANICKED,
}
_FATAL_MESSAGES = {
    WATCHDOG: "the guest's watchdog ran out",
    PANICKED: "the guest's kernel panicked",
    CRASHED: "the guest crashed",
}


class End(NamedTuple):
    """Exit code, reason and message for the status of an ended machine."""

    exit_code: int
    reason: str
    message: str = ""


_CUT_OFF = End(KILLED, names.START_CUT_OFF, "its start was broken off")


def unit_state(state: int, reason: int, *, was_started: bool, has_run: bool = False) -> UnitState:
    """Convert libvirt's state and reason of a domain to the unit's state.

    `was_started`: a start was requested, even if it was interrupted. `has_run`: the machine already ran
    before the start that is in progress; this start restores it from saved memory.
    """
    if is_half_made(state, reason):
        return UnitState.SUSPENDED if has_run else UnitState.CREATED
    match state:
        case libvirt.VIR_DOMAIN_RUNNING | libvirt.VIR_DOMAIN_BLOCKED | libvirt.VIR_DOMAIN_SHUTDOWN:
            return UnitState.RUNNING
        case libvirt.VIR_DOMAIN_PAUSED:
            return UnitState.RUNNING if reason in _PASSING else UnitState.PAUSED
        case libvirt.VIR_DOMAIN_PMSUSPENDED | libvirt.VIR_DOMAIN_CRASHED:
            return UnitState.PAUSED
        case libvirt.VIR_DOMAIN_SHUTOFF if reason == libvirt.VIR_DOMAIN_SHUTOFF_SAVED:
            return UnitState.SUSPENDED
        case libvirt.VIR_DOMAIN_SHUTOFF:
            return UnitState.EXITED if was_started else UnitState.CREATED
        case _:
            return UnitState.UNKNOWN


def is_half_made(state: int, reason: int) -> bool:
    """Return True while libvirt is creating the emulator. Such a machine does not survive a crash of libvirt."""
    return (state, reason) == (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP)


def fatal_hold(state: int, reason: int) -> str:
    """Return why a guest whose emulator still exists crashed; empty if it has not crashed.

    The reason is GuestPanicked, GuestCrashed or Watchdog. libvirt ends the emulator after a panic itself, but
    only if it receives the panic event. A panic while libvirt was not connected to the emulator leaves this
    state. The watchdog always leaves it, so that its reason is not lost.
    """
    if state == libvirt.VIR_DOMAIN_CRASHED:
        return PANICKED if reason == libvirt.VIR_DOMAIN_CRASHED_PANICKED else CRASHED
    return _FATAL_PAUSES.get(reason, "") if state == libvirt.VIR_DOMAIN_PAUSED else ""


def held_reason(state: int, reason: int) -> str:
    """Return the reason that a PAUSED machine does not run, as one word such as DiskError."""
    if state == libvirt.VIR_DOMAIN_PMSUSPENDED:
        return "GuestAsleep"
    return fatal_hold(state, reason) or _HELD_REASONS.get(reason, "Paused")


def disk_hold(errors: Mapping[str, int]) -> tuple[str, str]:
    """Return reason and message for a machine that is paused because of an I/O error.

    `errors`: libvirt's error code of each failed disk, by disk name.
    """
    full = sorted(disk for disk, code in errors.items() if code == libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE)
    if full:
        text = f"the node has no space left for its disk {', '.join(full)}; make room there"
        return DISK_FULL, f"{text}, then use 'kubeletx vm resume'"
    which = f" {', '.join(sorted(errors))}" if errors else ""
    text = f"the node cannot read or write its disk{which}; look at the node's log"
    return DISK_ERROR, f"{text}, then use 'kubeletx vm resume'"


def end_of(reason: int, *, cut_off: bool = False, hint: str = "") -> End:
    """Return exit code, reason and message of a machine that is off.

    `reason`: libvirt's reason. `cut_off`: the start of the machine was never confirmed; if libvirt reports a
    failed emulator, the emulator was only half created when libvirt itself ended. `hint`: the guest's last
    event (Watchdog, GuestPanicked), which overrides libvirt's reason; empty: none.
    """
    if hint:
        return End(FAILED, hint, _FATAL_MESSAGES.get(hint, ""))
    match reason:
        case libvirt.VIR_DOMAIN_SHUTOFF_CRASHED | libvirt.VIR_DOMAIN_SHUTOFF_FAILED if cut_off:
            return _CUT_OFF
        case libvirt.VIR_DOMAIN_SHUTOFF_CRASHED:
            return End(FAILED, CRASHED, "the guest crashed or its emulator ended unexpectedly")
        case libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN:
            return End(0, "Completed", "the guest shut down")
        case libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED:
            return End(KILLED, "Error", "the machine was powered off")
        case libvirt.VIR_DOMAIN_SHUTOFF_FAILED:
            return End(FAILED, "Error", "the emulator failed")
        case _ if cut_off:
            return _CUT_OFF
        case _:
            return End(UNKNOWN_END, "Unknown", "how it ended is not known: libvirt did not run at that time")
