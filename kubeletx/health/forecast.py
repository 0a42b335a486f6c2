"""Forecast: what the guardian would do next if everything stayed as it is, when, and why. Pure.

It ticks the same functions as the guardian on copies of their values, so it cannot disagree with them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

from . import drain, operations
from .config import HealthSettings
from .contact import ContactReport
from .contact import merge as merge_contact
from .drain import DrainRequester, NodeDrain
from .model import TICK_SECONDS, Begin, CheckState, RecordEvent, SetSlot, SlotTable, WithdrawUpdate
from .operations import Deed, OperationStep
from .state import RunState
from .validation import ControllerMark, Facts, Phase, Validation, Vault, validate

MOST_TICKS: Final = 2 * 604800 // TICK_SECONDS
"""Ticks that are looked ahead: two weeks."""
MOST_EVENTS: Final = 20


class Expected(NamedTuple):
    """Something that would happen. `in_seconds`: from now, in seconds of ticks."""

    in_seconds: int
    what: str


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """Values of the guardian from which a forecast starts. `items`: its settings that differ from the defaults."""

    run: RunState
    table: SlotTable | None
    reports: dict[str, ContactReport]
    checks: Sequence[CheckState] = ()
    vault: Vault = Vault.NONE
    mark: ControllerMark = ControllerMark.NONE
    is_halted: bool = True
    drain: NodeDrain | None = None
    items: dict[str, int | str] = {}


def forecast(start: Situation, *, repeats: bool) -> list[Expected]:
    """Return what would happen, up to the first reboot.

    `repeats` True: every source repeats its last report at each tick; False: all sources are silent from now on.
    """
    run, table, settings = start.run, start.table, HealthSettings(start.items)
    begin = now = run.ticks * TICK_SECONDS
    expected: list[Expected] = []

    def expect(what: str) -> None:
        if not expected or expected[-1].what != what:
            expected.append(Expected(now - begin, what))

    for _ in range(MOST_TICKS):
        now += TICK_SECONDS
        reports = {
            name: ContactReport(report.reach, now if repeats else report.at, report.count + repeats)
            for name, report in start.reports.items()
        }
        contact = merge_contact(run.contact, reports, now, settings.number("contact.fresh.limit"))
        is_busy = run.operation is not None and run.operation.step not in {
            OperationStep.WAITING,
            OperationStep.HALTED,
        }
        facts = Facts(
            now=now,
            table=table,
            contact=contact,
            checks=start.checks,
            vault=start.vault,
            mark=start.mark,
            is_busy=is_busy,
        )
        validation, effects = validate(run.validation, facts, settings)
        run = replace(run, ticks=run.ticks + 1, validation=validation, contact=contact)
        for effect in effects:
            match effect:
                case RecordEvent(reason, message):
                    expect(f"{reason}: {message}")
                case SetSlot(label, state) if table is not None:
                    expect(f"slot {label} becomes {state}")
                    table = table.with_state(label, state)
                case WithdrawUpdate():
                    run = replace(run, operation=operations.withdraw_update(run.operation))
                case Begin() if run.operation is None or not is_busy:
                    operation, _ = operations.begin(run.operation, effect, now, must_wait=False)
                    run = replace(run, operation=operation)
                    expect(f"{effect.kind} begins ({effect.boot_reason.text}): {effect.reason}")
        if (operation := run.operation) is not None:
            seen = start.drain
            if seen is not None and seen.at is not None and repeats:
                seen = replace(seen, at=now)
            is_testing = validation.phase is Phase.TESTING
            if operations.waits(operation) and not is_testing:
                run = replace(run, drain=drain.wait(run.drain, DrainRequester.DEVICEOP, seen, now, settings))
            operation, deeds = operations.advance(
                operation,
                now,
                is_held=is_testing or bool(run.drain.held_by),
                all_halted=start.is_halted,
            )
            run = replace(run, operation=operation)
            if Deed.ACT in deeds:
                expect(f"{operation.kind}: {operation.reason}")
                break
        if len(expected) >= MOST_EVENTS or (not effects and _rests(run, validation, contact.is_reached)):
            break
    return expected


def _rests(run: RunState, validation: Validation, is_reached: bool) -> bool:
    """True if the same values will never lead to anything."""
    waits = validation.checks_failed_since is not None or validation.vault_failed_since is not None
    return validation.phase is Phase.NORMAL and is_reached and not waits and run.operation is None
