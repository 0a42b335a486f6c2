"""`HealthChecks`: runs the health checks of plugins, and reports their results in three places.

verdict    check of /healthz    node condition       event when the verdict changes
passed     ok                   True                 Normal; none for the first verdict
warning    ok, with message     True, with message   Warning
failed     failed               False                Warning
unknown    ok, with message     Unknown              Warning; the check itself failed

Until the first verdict the condition keeps the status that an earlier process of the agent reported (`NodeReporter`).
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from kubeletx.api import CheckResult, Clock, EventSink, HealthCheck, KubeletxError, ObjectRef, Severity
from kubeletx.api.names import Event
from kubeletx.node.readiness import NOT_CHECKED, CheckFacts
from kubeletx.server.views import PartHealth

from .callbacks import Callbacks, expect, line

log = structlog.get_logger(__name__)

PART_PREFIX: Final = "plugin-"


class CheckVerdict(enum.Enum):
    """Result of a health check. UNKNOWN: the call of the check failed, or the check has not run yet."""

    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    UNKNOWN = "unknown"


_STATUS: Final = {
    CheckVerdict.PASSED: ("True", "CheckPassed"),
    CheckVerdict.WARNING: ("True", "CheckWarning"),
    CheckVerdict.FAILED: ("False", "CheckFailed"),
    CheckVerdict.UNKNOWN: ("Unknown", "CheckBroken"),
}
"""Verdict → status and reason of the node condition."""


class LastCheck(msgspec.Struct, frozen=True):
    """The last result of one health check. `message`: the plugin's message, or the error of the call."""

    verdict: CheckVerdict
    message: str = ""


NOT_YET: Final = LastCheck(CheckVerdict.UNKNOWN, "not checked yet")


class RunningCheck(msgspec.Struct, kw_only=True):
    """A health check that its plugin's factory has made, with its last result."""

    callbacks: Callbacks
    outcome: LastCheck = NOT_YET

    @property
    def name(self) -> str:
        return self.callbacks.registration.name


class HealthChecks:
    """Runs the plugins' health checks and keeps their last results; the agent runs `run` as one task."""

    def __init__(
        self,
        checks: Sequence[RunningCheck],
        *,
        clock: Clock,
        events: EventSink,
        node: ObjectRef,
        timeout_seconds: float,
    ) -> None:
        self.checks = tuple(checks)
        self._clock = clock
        self._events = events
        self._node = node
        self._timeout_seconds = timeout_seconds

    def parts(self) -> tuple[PartHealth, ...]:
        """Return the last result of each check as an entry of ``/healthz``."""
        return tuple(
            PartHealth(
                name=PART_PREFIX + check.name,
                ok=check.outcome.verdict is not CheckVerdict.FAILED,
                message=check.outcome.message,
            )
            for check in self.checks
        )

    def facts(self) -> tuple[CheckFacts, ...]:
        """Return the last result of each check, from which the node's conditions are computed."""
        return tuple(_facts(check) for check in self.checks)

    async def run(self, on_changed: Callable[[tuple[CheckFacts, ...]], None]) -> None:
        """Run each check once per period, until cancelled.

        `on_changed`: called with `facts()` after each change of a result.
        """
        async with asyncio.TaskGroup() as group:
            for check in self.checks:
                group.create_task(self._follow(check, on_changed), name=f"health check {check.name}")

    async def _follow(
        self, running: RunningCheck, on_changed: Callable[[tuple[CheckFacts, ...]], None]
    ) -> None:
        while True:
            if self._note(running, await self.look(running)):
                on_changed(self.facts())
            await self._clock.sleep(running.callbacks.registration.period_seconds)

    async def look(self, running: RunningCheck) -> LastCheck:
        """Call the check and return its result, which is not stored."""
        try:
            return await running.callbacks.call(
                "check", partial(_checked, running.callbacks.made), seconds=self._timeout_seconds
            )
        except KubeletxError as error:
            return LastCheck(CheckVerdict.UNKNOWN, line(str(error)))

    def _note(self, running: RunningCheck, outcome: LastCheck) -> bool:
        """Store the check's result, and return True if it changed. Record an event if the verdict changed.

        A first verdict of passed is not recorded.
        """
        before, running.outcome = running.outcome, outcome
        if outcome.verdict is before.verdict or (
            before is NOT_YET and outcome.verdict is CheckVerdict.PASSED
        ):
            return outcome != before
        passed = outcome.verdict is CheckVerdict.PASSED
        message = f"Health check {running.name}: {outcome.verdict.value}"
        self._events.record(
            self._node,
            type="Normal" if passed else "Warning",
            reason=Event.HEALTH_CHECK_PASSED if passed else Event.HEALTH_CHECK_FAILED,
            message=f"{message}: {outcome.message}" if outcome.message else message,
        )
        return True


async def _checked(check: HealthCheck) -> LastCheck:
    """Call the plugin's check and convert the result. Raises TypeError if the result is no CheckResult."""
    result = expect(await check.check(), CheckResult)
    if result.ok:
        return LastCheck(CheckVerdict.PASSED, line(result.message))
    failed = result.severity is Severity.ERROR
    return LastCheck(
        CheckVerdict.FAILED if failed else CheckVerdict.WARNING, line(result.message) or "no message"
    )


def _facts(running: RunningCheck) -> CheckFacts:
    status, reason = (
        ("Unknown", NOT_CHECKED) if running.outcome is NOT_YET else _STATUS[running.outcome.verdict]
    )
    return CheckFacts(name=running.name, status=status, reason=reason, message=running.outcome.message)
