"""Runs the checks: a look of each in its period, settled results for the verdict, a line for each change."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec.structs import replace

from ..background import Background
from ..config import MOST_ENTRIES
from ..model import CheckLevel, CheckState, Effect, RecordEvent
from .agents import PluginCheck
from .base import CheckOutcome, CheckRecord, LookFacts, NodeCheck, settle
from .section import read_checks

CheckRecords = dict[str, CheckRecord]


class CheckRunner:
    """All checks of section ``checks``."""

    def __init__(
        self,
        section: Any,
        report: Callable[[str, str], object],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.checks = read_checks(section, lambda line: report("BadCheck", line))
        self.background: Background[CheckOutcome] = Background(clock)
        self._report, self._clock = report, clock
        self._counters: dict[str, tuple[dict[str, int], float]] = {}
        """Counters of the last look, and its time."""

    def tick(self, before: Mapping[str, CheckRecord], facts: LookFacts) -> tuple[CheckRecords, list[Effect]]:
        """Take results and start what is due; return all records, and lines for the history."""
        after = {name: before.get(name, CheckRecord()) for name in self.checks}
        effects: list[Effect] = []
        outcomes = {
            name: outcome or CheckOutcome(False, f"no answer within {self.checks[name].deadline:g} s")
            for name, outcome in self.background.results().items()
        }
        for name, check in self.checks.items():
            record = after[name]
            if record.looked is not None and record.looked <= facts.now < record.looked + check.period:
                continue
            after[name] = replace(record, looked=facts.now)
            counters, at = self._counters.get(name, ({}, 0.0))
            mine = replace(facts, before=counters, seconds=self._clock() - at)
            if check.blocks:
                limit = check.deadline + check.spare_seconds
                self.background.start(name, partial(_look, check, mine), limit)
            else:
                outcomes[name] = _look(check, mine)
        for name, outcome in outcomes.items():
            check = self.checks[name]
            self._counters[name] = outcome.counters, self._clock()
            was = after[name]
            after[name] = now = settle(was, outcome, failures=check.failures, successes=check.successes)
            if now.ok is not was.ok:
                effects += self._change(check, name, now)
        return after, effects

    def states(self, records: Mapping[str, CheckRecord], facts: LookFacts) -> tuple[CheckState, ...]:
        """Return the results for the verdict: of these checks, and of the agent's that no check names."""
        states = [
            CheckState(name=name, level=check.level, ok=_verdict(check, record), message=record.message)
            for name, check in self.checks.items()
            for record in (records[name],)
        ]
        named = {check.check for check in self.checks.values() if isinstance(check, PluginCheck)}
        others = facts.agent.checks[:MOST_ENTRIES] if facts.agent else ()
        states += [
            replace(result, level=CheckLevel.INFORMATION)
            for result in others
            if result.name not in named | records.keys()
        ]
        return tuple(states)

    def _change(self, check: NodeCheck, name: str, record: CheckRecord) -> list[Effect]:
        reason = {True: "CheckPassed", False: "CheckFailed", None: "CheckUnknown"}[record.ok]
        line = f"{name}: {record.message}"
        if check.level is CheckLevel.REQUIRED:
            return [RecordEvent(reason, line)]
        self._report(reason, line)
        return []


def _verdict(check: NodeCheck, record: CheckRecord) -> bool | None:
    """Return the result for the verdict: a required check without an answer must not hold a test without limit."""
    is_silent = record.ok is record.last is None and record.row >= check.failures
    return False if is_silent and check.level is CheckLevel.REQUIRED else record.ok


def _look(check: NodeCheck, facts: LookFacts) -> CheckOutcome:
    try:
        return check.look(facts)
    except (FileNotFoundError, ValueError) as error:
        return CheckOutcome(None, str(error))
    except OSError as error:  # such as a broken disk
        return CheckOutcome(False, str(error))
    except Exception as error:  # noqa: BLE001 - the root of its thread; a check must not end a tick
        return CheckOutcome(None, f"{type(error).__name__}: {error}")
