"""What libvirt's states mean."""

from __future__ import annotations

import libvirt
import pytest
from kubeletx_libvirt.domain.states import end_of, held_reason, unit_state

from kubeletx.api import UnitState, names


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED, UnitState.RUNNING),
        (libvirt.VIR_DOMAIN_SHUTDOWN, 0, UnitState.RUNNING),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER, UnitState.HELD),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR, UnitState.HELD),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_SNAPSHOT, UnitState.RUNNING),
        (libvirt.VIR_DOMAIN_PMSUSPENDED, 0, UnitState.HELD),
        (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SAVED, UnitState.PARKED),
        (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, UnitState.EXITED),
        (libvirt.VIR_DOMAIN_CRASHED, 0, UnitState.EXITED),
        (libvirt.VIR_DOMAIN_NOSTATE, 0, UnitState.UNKNOWN),
    ],
)
def test_every_state_of_libvirt_is_one_of_ours(state: int, reason: int, expected: UnitState) -> None:
    assert unit_state(state, reason, was_started=True) is expected


def test_a_domain_that_was_never_started_is_created() -> None:
    assert unit_state(libvirt.VIR_DOMAIN_SHUTOFF, 0, was_started=False) is UnitState.CREATED


@pytest.mark.parametrize(
    ("reason", "code", "word"),
    [
        (libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, 0, "Completed"),
        (libvirt.VIR_DOMAIN_SHUTOFF_DESTROYED, 137, "Error"),
        (libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, 1, "GuestCrashed"),
        (libvirt.VIR_DOMAIN_SHUTOFF_FAILED, 1, "Error"),
        (libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN, 255, "Unknown"),
    ],
)
def test_ends_are_told_apart(reason: int, code: int, word: str) -> None:
    end = end_of(libvirt.VIR_DOMAIN_SHUTOFF, reason)
    assert (end.exit_code, end.reason) == (code, word)


def test_a_watchdog_and_a_start_that_was_broken_off_are_told_apart_too() -> None:
    off = libvirt.VIR_DOMAIN_SHUTOFF
    assert end_of(off, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, watchdog=True).reason == "Watchdog"
    assert end_of(off, libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN, cut_off=True).reason == names.START_CUT_OFF


def test_a_machine_that_is_held_says_why() -> None:
    assert held_reason(libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR) == "DiskError"
    assert held_reason(libvirt.VIR_DOMAIN_PMSUSPENDED, 0) == "GuestAsleep"
