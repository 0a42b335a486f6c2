"""Decisions of a tick about OS images: boot a new one once, test it, commit it, or fall back. Pure.

    NORMAL ─► INSTALLED ─► (reboot) ─► TESTING ─► COMMITTING ─► NORMAL
                                          └────► FALLING_BACK ─► (reboot) ─► NORMAL

The numbers T1 to T14 are the transitions of EVE's upgrade validation. `TABLE` has every change of phase; which one is due
follows from the slots and from timers that count ticks. Writes to slots are effects that are repeated until the slots show
them, so a guardian that is killed between two writes goes on with the second one.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from .config import HealthSettings
from .contact import Contact
from .model import (
    TICK_SECONDS,
    Begin,
    BootReason,
    CheckLevel,
    CheckState,
    Effect,
    OperationKind,
    Reach,
    RecordEvent,
    SetSlot,
    SlotState,
    SlotTable,
    WithdrawUpdate,
)


class Phase(enum.StrEnum):
    """Phase of the upgrade, see the drawing at the top of this file."""

    NORMAL = "Normal"
    INSTALLED = "Installed"
    """The other slot is updating; the node reboots into it."""
    TESTING = "Testing"
    COMMITTING = "Committing"
    """The test is passed; the slots are written."""
    FALLING_BACK = "FallingBack"
    """The test has failed; the node reboots."""


class UpgradeCause(enum.StrEnum):
    """Reason for a change of phase; the values are the labels of the drawing in docs/states.md."""

    WRITTEN = "T1 other slot is updating"
    CANCELLED = "T14 other slot is not updating any more"
    BOOTED_NEW = "T3, T4 boot of the new image"
    BOOTED_OLD = "boot of the old image"
    PASSED = "T6 window over, checks good, enough contacts"
    MARKED_ACTIVE = "the controller marks the image active"
    COMMITTED = "T7, T8 slots show the commit"
    UNREACHED = "T9 controller not reached for the fallback limit"
    VAULT = "T10 vault not open at its cut-off"
    CHECKS = "a required check failed for its limit"
    MARKED_FAILED = "the controller marks the image failed"


_P, _C = Phase, UpgradeCause
TABLE: Final[Mapping[tuple[Phase, UpgradeCause], Phase]] = {
    (_P.NORMAL, _C.WRITTEN): _P.INSTALLED,
    (_P.NORMAL, _C.BOOTED_NEW): _P.TESTING,
    (_P.INSTALLED, _C.CANCELLED): _P.NORMAL,
    (_P.INSTALLED, _C.BOOTED_NEW): _P.TESTING,
    (_P.TESTING, _C.PASSED): _P.COMMITTING,
    (_P.TESTING, _C.MARKED_ACTIVE): _P.COMMITTING,
    (_P.TESTING, _C.UNREACHED): _P.FALLING_BACK,
    (_P.TESTING, _C.VAULT): _P.FALLING_BACK,
    (_P.TESTING, _C.CHECKS): _P.FALLING_BACK,
    (_P.TESTING, _C.MARKED_FAILED): _P.FALLING_BACK,
    (_P.TESTING, _C.COMMITTED): _P.NORMAL,
    (_P.COMMITTING, _C.COMMITTED): _P.NORMAL,
    (_P.FALLING_BACK, _C.BOOTED_OLD): _P.NORMAL,
}


class Vault(enum.StrEnum):
    """State of the node's encrypted storage, as a topic reports it."""

    NONE = "none"
    """Nothing reported: there is none, or its manager has not started."""
    OPEN = "open"
    ERROR = "error"


class ControllerMark(enum.StrEnum):
    """The controller's own verdict on the running image."""

    NONE = ""
    ACTIVE = "active"
    FAILED = "failed"


class Validation(msgspec.Struct, frozen=True, kw_only=True):
    """State from tick to tick. All times are seconds of ticks; None: not running.

    `counted`: seconds of the test window that count. `commit`: label of the image whose commit has begun; it is stored
    before the first slot is written. `held_by`: why the window did not count at the last tick.
    """

    phase: Phase = Phase.NORMAL
    counted: int = 0
    checks_failed_since: int | None = None
    vault_failed_since: int | None = None
    commit: str = ""
    held_by: str = ""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a tick sees. `table` None: the slots have not answered yet. `is_busy`: an operation is under way."""

    now: int
    table: SlotTable | None
    contact: Contact = Contact()
    checks: Sequence[CheckState] = ()
    vault: Vault = Vault.NONE
    mark: ControllerMark = ControllerMark.NONE
    is_busy: bool = False


def validate(
    state: Validation, facts: Facts, settings: HealthSettings
) -> tuple[Validation, tuple[Effect, ...]]:
    """Decide one tick."""
    state = replace(
        state,
        checks_failed_since=_since(state.checks_failed_since, bool(failed_checks(facts.checks)), facts.now),
        # Counted only after the first contact: the vault's key may come from the controller.
        vault_failed_since=_since(
            state.vault_failed_since,
            facts.vault is Vault.ERROR and facts.contact.successes > 0,
            facts.now,
        ),
    )
    effects: list[Effect] = []
    if facts.table is not None:
        state, effects = _upgrade(state, facts, facts.table, settings)
    lost = facts.contact.silent_seconds(facts.now)
    if not facts.is_busy and not effects and lost > settings.number("timer.reboot.no.network"):
        reason = f"the controller was not reached for {lost} s (timer.reboot.no.network)"
        effects.append(_reboot(BootReason.DISCONNECT, reason))
    return state, tuple(effects)


def failed_checks(checks: Sequence[CheckState]) -> list[CheckState]:
    """Return the required checks that fail."""
    return [check for check in checks if check.level == CheckLevel.REQUIRED and check.ok is False]


def remaining_seconds(state: Validation, settings: HealthSettings) -> int:
    """Return what is left of the test window; 0 if no test runs."""
    if state.phase is not Phase.TESTING:
        return 0
    return max(0, settings.number("timer.test.baseimage.update") - state.counted)


def vault_is_locked(state: Validation, now: int, settings: HealthSettings) -> bool:
    """Return True if the vault has failed for longer than its cut-off."""
    since = state.vault_failed_since
    return since is not None and now - since > settings.number("timer.vault.ready.cutoff")


def _since(before: int | None, holds: bool, now: int) -> int | None:
    if not holds:
        return None
    return now if before is None else before


def _go(state: Validation, cause: UpgradeCause) -> Validation:
    return replace(state, phase=TABLE[state.phase, cause], counted=0, held_by="")


def _reboot(boot_reason: BootReason, reason: str) -> Begin:
    return Begin(kind=OperationKind.REBOOT, boot_reason=boot_reason, reason=reason)


def _upgrade(
    state: Validation, facts: Facts, table: SlotTable, settings: HealthSettings
) -> tuple[Validation, list[Effect]]:
    if state.commit:
        return _go_on_with_commit(state, facts, table)
    if table.current.state in {SlotState.INPROGRESS, SlotState.UPDATING}:
        # UPDATING: a loader that does not count tries has booted it.
        if state.phase in {Phase.NORMAL, Phase.INSTALLED}:
            state = _go(state, UpgradeCause.BOOTED_NEW)
        if state.phase is Phase.TESTING and not facts.is_busy:
            return _test(state, facts, table, settings)
        return state, []
    if state.phase is Phase.FALLING_BACK:
        state = _go(state, UpgradeCause.BOOTED_OLD)
    if state.phase is Phase.TESTING:  # another program has committed the image
        state = _go(state, UpgradeCause.COMMITTED)
    return _rest(state, facts, table)


def _rest(state: Validation, facts: Facts, table: SlotTable) -> tuple[Validation, list[Effect]]:
    """Decide while the running image is committed."""
    other = table.other
    if other.state is SlotState.ACTIVE and table.current.state is SlotState.ACTIVE:
        # A commit was cut by a program that keeps no record of it. The running image works.
        return state, [
            RecordEvent(
                "CommitRepaired",
                f"{other.label} was active beside {table.current_label}; it is set to unused",
            ),
            SetSlot(other.label, SlotState.UNUSED),
        ]
    if other.state is not SlotState.UPDATING:
        if state.phase is not Phase.INSTALLED:
            return state, []
        return _go(state, UpgradeCause.CANCELLED), [WithdrawUpdate()]
    if state.phase is Phase.NORMAL:
        state = _go(state, UpgradeCause.WRITTEN)
    if facts.is_busy:
        return state, []
    return state, [_reboot(BootReason.UPDATE, f"the new image in {other.label} is booted (T2)")]


def _test(
    state: Validation, facts: Facts, table: SlotTable, settings: HealthSettings
) -> tuple[Validation, list[Effect]]:
    label = table.current_label
    if failure := _failure(state, facts, settings):
        cause, boot_reason, text = failure
        return _go(state, cause), [_reboot(boot_reason, f"{label} falls back: {text}")]
    if facts.mark is ControllerMark.ACTIVE:
        return _begin_commit(_go(state, UpgradeCause.MARKED_ACTIVE), table, "the controller marked it active")
    held_by, restarts = _hold(facts, settings)
    counted = state.counted
    if restarts:
        counted = 0
    elif not held_by:
        counted += TICK_SECONDS
    state = replace(state, counted=counted, held_by=held_by)
    needed = settings.number("contact.successes")
    if counted < settings.number("timer.test.baseimage.update") or held_by:
        return state, []
    if facts.contact.successes < needed:
        return replace(
            state, held_by=f"{facts.contact.successes} of {needed} contacts with the controller"
        ), []
    if facts.contact.last_success != facts.now:
        # The last report is fresh, but nothing shows that the controller is still reached.
        return replace(state, held_by="one more contact with the controller"), []
    return _begin_commit(_go(state, UpgradeCause.PASSED), table, f"{counted} s were good")


def _failure(
    state: Validation, facts: Facts, settings: HealthSettings
) -> tuple[UpgradeCause, BootReason, str] | None:
    if facts.mark is ControllerMark.FAILED:
        return UpgradeCause.MARKED_FAILED, BootReason.FALLBACK, "the controller marked it failed"
    lost = facts.contact.silent_seconds(facts.now)
    if lost > settings.number("timer.update.fallback.no.network"):
        return UpgradeCause.UNREACHED, BootReason.FALLBACK, f"the controller was not reached for {lost} s"
    if vault_is_locked(state, facts.now, settings):
        return UpgradeCause.VAULT, BootReason.VAULT_FAILURE, "the vault did not open"
    since = state.checks_failed_since
    if since is not None and facts.now - since > settings.number("timer.update.fallback.failed.checks"):
        names = ", ".join(f"{check.name}: {check.message}" for check in failed_checks(facts.checks))
        return UpgradeCause.CHECKS, BootReason.FALLBACK, names
    return None


def _hold(facts: Facts, settings: HealthSettings) -> tuple[str, bool]:
    """Return why this tick does not count for the test window (empty: it counts), and whether the window restarts."""
    if facts.contact.reach is Reach.TEMPORARY_FAIL:
        return "the controller answers, but has trouble of its own", True
    if facts.contact.reach is not Reach.SUCCESS:
        # Before the first contact there is nothing to restart.
        return "the controller is not reached", settings.word("contact.lost.in.window") == "restart"
    if failed := failed_checks(facts.checks):
        return f"check {failed[0].name} fails: {failed[0].message}", True
    if facts.vault is Vault.ERROR:
        return "the vault is not open", True
    unknown = [c.name for c in facts.checks if c.level == CheckLevel.REQUIRED and c.ok is None]
    return (f"check {unknown[0]} has no result yet" if unknown else ""), False


def _begin_commit(state: Validation, table: SlotTable, why: str) -> tuple[Validation, list[Effect]]:
    label = table.current_label
    return replace(state, commit=label), [
        RecordEvent("UpgradePassed", f"{label} is committed: {why}"),
        SetSlot(label, SlotState.ACTIVE),
    ]


def _go_on_with_commit(state: Validation, facts: Facts, table: SlotTable) -> tuple[Validation, list[Effect]]:
    label = state.commit
    committed = next((slot for slot in table.slots if slot.label == label), None)
    if committed is None:
        return replace(state, commit="", phase=Phase.NORMAL), []
    if table.current_label == label:
        if committed.state is not SlotState.ACTIVE:
            return state, [SetSlot(label, SlotState.ACTIVE)]
        if table.other.state is not SlotState.UNUSED:
            return state, [SetSlot(table.other.label, SlotState.UNUSED)]
        return Validation(), [RecordEvent("UpgradeCommitted", f"{label} is active")]
    # The power was cut during the commit, and the loader took the old image.
    if committed.state is not SlotState.ACTIVE:
        return Validation(), [
            RecordEvent("CommitLost", f"{label} passed its test, but was not committed before a power cut")
        ]
    if table.current.state is not SlotState.UNUSED:
        return state, [SetSlot(table.current_label, SlotState.UNUSED)]
    if facts.is_busy:
        return state, []
    return state, [
        _reboot(BootReason.UPDATE, f"{label} is committed, and the loader had taken the old image")
    ]
