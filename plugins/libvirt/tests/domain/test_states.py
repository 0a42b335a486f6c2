"""What libvirt's states mean."""

from __future__ import annotations

import libvirt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubeletx_libvirt.domain.states import (
    CRASHED,
    PANICKED,
    WATCHDOG,
    disk_hold,
    end_of,
    fatal_hold,
    held_reason,
    unit_state,
)

from kubeletx.api import UnitState, names


@pytest.mark.parametrize(
    ("state", "reason", "expected"),
    [
        (libvirt.VIR_DOMAIN_RUNNING, libvirt.VIR_DOMAIN_RUNNING_BOOTED, UnitState.RUNNING),
        (libvirt.VIR_DOMAIN_SHUTDOWN, 0, UnitState.RUNNING),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER, UnitState.PAUSED),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR, UnitState.PAUSED),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_SNAPSHOT, UnitState.RUNNING),
        (libvirt.VIR_DOMAIN_PMSUSPENDED, 0, UnitState.PAUSED),
        (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SAVED, UnitState.SUSPENDED),
        (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, UnitState.EXITED),
        (libvirt.VIR_DOMAIN_CRASHED, libvirt.VIR_DOMAIN_CRASHED_PANICKED, UnitState.PAUSED),
        (libvirt.VIR_DOMAIN_NOSTATE, 0, UnitState.UNKNOWN),
    ],
)
def test_every_state_of_libvirt_is_one_of_ours(state: int, reason: int, expected: UnitState) -> None:
    assert unit_state(state, reason, was_started=True) is expected


def test_a_domain_that_was_never_started_is_created() -> None:
    assert unit_state(libvirt.VIR_DOMAIN_SHUTOFF, 0, was_started=False) is UnitState.CREATED


def test_a_machine_that_is_half_made_does_not_run_yet() -> None:
    half_made = (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_STARTING_UP)
    assert unit_state(*half_made, was_started=True) is UnitState.CREATED
    assert unit_state(*half_made, was_started=True, has_run=True) is UnitState.SUSPENDED


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
def test_ends_are_distinguished(reason: int, code: int, word: str) -> None:
    end = end_of(reason)
    assert (end.exit_code, end.reason) == (code, word)


def test_a_watchdog_is_distinguished_from_a_shutdown() -> None:
    assert end_of(libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, hint=WATCHDOG).reason == "Watchdog"


@pytest.mark.parametrize(
    "reason",
    [
        libvirt.VIR_DOMAIN_SHUTOFF_UNKNOWN,
        libvirt.VIR_DOMAIN_SHUTOFF_DAEMON,
        libvirt.VIR_DOMAIN_SHUTOFF_CRASHED,
        libvirt.VIR_DOMAIN_SHUTOFF_FAILED,
    ],
)
def test_an_emulator_that_was_half_made_when_libvirt_ended_never_ran(reason: int) -> None:
    assert end_of(reason, cut_off=True).reason == names.START_CUT_OFF


def test_a_guest_that_ended_itself_did_run_though_no_one_saw_its_start() -> None:
    end = end_of(libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN, cut_off=True)
    assert (end.exit_code, end.reason) == (0, "Completed")


@pytest.mark.parametrize(
    ("state", "reason", "word"),
    [
        (libvirt.VIR_DOMAIN_CRASHED, libvirt.VIR_DOMAIN_CRASHED_PANICKED, "GuestPanicked"),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_CRASHED, "GuestPanicked"),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_WATCHDOG, "Watchdog"),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_USER, ""),
        (libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR, ""),
        (libvirt.VIR_DOMAIN_SHUTOFF, libvirt.VIR_DOMAIN_SHUTOFF_CRASHED, ""),
    ],
)
def test_a_dead_guest_whose_emulator_stands_still_is_distinguished_from_one_that_was_paused(
    state: int, reason: int, word: str
) -> None:
    assert fatal_hold(state, reason) == word


@given(state=st.integers(-1, 9), reason=st.integers(-1, 20), was_started=st.booleans())
def test_a_machine_that_is_ended_by_us_is_held_until_then_and_says_why(
    state: int, reason: int, was_started: bool
) -> None:
    what = fatal_hold(state, reason)
    if what:
        assert unit_state(state, reason, was_started=was_started) is UnitState.PAUSED
        assert held_reason(state, reason) == what


@given(
    reason=st.integers(-1, 20), cut_off=st.booleans(), hint=st.sampled_from(("", CRASHED, PANICKED, WATCHDOG))
)
def test_only_a_shutdown_by_the_guest_is_a_success_and_what_the_guest_did_outlives_its_emulator(
    reason: int, cut_off: bool, hint: str
) -> None:
    end = end_of(reason, cut_off=cut_off, hint=hint)
    assert (end.exit_code == 0) is (reason == libvirt.VIR_DOMAIN_SHUTOFF_SHUTDOWN and not hint)
    assert end.reason == hint or not hint
    assert end.reason


def test_a_machine_that_is_held_says_why() -> None:
    assert held_reason(libvirt.VIR_DOMAIN_PAUSED, libvirt.VIR_DOMAIN_PAUSED_IOERROR) == "DiskError"
    assert held_reason(libvirt.VIR_DOMAIN_PMSUSPENDED, 0) == "GuestAsleep"


def test_a_full_disk_is_distinguished_from_a_broken_one_with_what_to_do() -> None:
    full = disk_hold({"vdb": libvirt.VIR_DOMAIN_DISK_ERROR_NO_SPACE, "vda": 1})
    assert full[0] == "DiskFull"
    assert "no space left for its disk vdb; make room there, then use 'kubeletx vm resume'" in full[1]
    for errors in ({"vda": libvirt.VIR_DOMAIN_DISK_ERROR_UNSPEC}, {}):
        reason, text = disk_hold(errors)
        assert reason == "DiskError"
        assert "look at the node's log" in text
