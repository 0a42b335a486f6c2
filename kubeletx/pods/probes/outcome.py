"""Evaluation of probe answers: thresholds, initial values, holds (P1 to P4). Pure.

A probe has a value: ready or not, alive or not, started or not yet. Consecutive equal answers change it:
`success_threshold` successes make it True, `failure_threshold` failures make it False. An attempt without an answer
(an error, a runtime that does not answer) counts as neither and does not interrupt the row.
Source: kubelet, prober/worker.go.
"""

from __future__ import annotations

import enum

import msgspec

from kubeletx.kube.types.core import Probe


class ProbeKind(enum.Enum):
    """Kind of a probe. The values name it in messages."""

    READINESS = "Readiness"
    LIVENESS = "Liveness"
    STARTUP = "Startup"


class ProbeOutcome(enum.Enum):
    """Kind of result of one probe attempt."""

    SUCCESS = "success"
    WARNING = "warning"
    """A success with a message for an event."""
    FAILURE = "failure"
    UNKNOWN = "unknown"
    """No answer could be obtained, and that is not the container's fault; worth another try."""
    SUSPENDED = "suspended"
    """The probe cannot run now (the runtime does not answer, the pod has no address): no event, no other try."""


class ProbeResult(msgspec.Struct, frozen=True):
    """Result of one probe attempt. `message`: text for users, as in the event."""

    result: ProbeOutcome
    message: str = ""

    @property
    def counts(self) -> bool:
        """True if the attempt counts as a success (a warning is one) or as a failure."""
        return self.result not in (ProbeOutcome.UNKNOWN, ProbeOutcome.SUSPENDED)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """A probe's periods and thresholds with the API's defaults (P1)."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3

    @classmethod
    def of(cls, probe: Probe) -> Timing:
        """Read the probe's numbers; a missing one, and 0 except as the initial delay, gets its default."""
        return cls(
            initial_delay_seconds=max(probe.initial_delay_seconds or 0, 0),
            period_seconds=max(probe.period_seconds or 10, 1),
            timeout_seconds=max(probe.timeout_seconds or 1, 1),
            success_threshold=max(probe.success_threshold or 1, 1),
            failure_threshold=max(probe.failure_threshold or 3, 1),
        )


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """State of one probe after the answers so far.

    `value`: passed or failed; None while a startup probe is undecided. `is_decided`: a threshold was reached, so that
    `value` is no longer the initial one. `last`: the last answer that counted; None before the first. `row`: number of
    consecutive answers equal to `last`.
    """

    value: bool | None
    is_decided: bool = False
    last: bool | None = None
    row: int = 0


def first_tally(kind: ProbeKind, before: bool | None = None) -> Tally:
    """State of a probe before its first answer (P2): readiness False, liveness True, startup None.

    `before`: value that the same unit had before the agent restarted, used instead; None if there is none.
    """
    if before is not None:
        return Tally(value=before)
    return Tally(value={ProbeKind.READINESS: False, ProbeKind.LIVENESS: True}.get(kind))


def tally(before: Tally, answer: ProbeResult, timing: Timing) -> Tally:
    """State of the probe after one more answer; `before` itself if the answer does not count."""
    if not answer.counts:
        return before
    passed = answer.result is not ProbeOutcome.FAILURE
    row = before.row + 1 if before.last is passed else 1
    needed = timing.success_threshold if passed else timing.failure_threshold
    if row < needed:
        return Tally(value=before.value, is_decided=before.is_decided, last=passed, row=row)
    return Tally(value=passed, is_decided=True, last=passed, row=row)


def is_on_hold(kind: ProbeKind, now: Tally) -> bool:
    """Return True if the probe rests until its unit is replaced or rebooted.

    That is after a failed liveness probe, and after a startup probe passed or failed.
    """
    if kind is ProbeKind.STARTUP:
        return now.is_decided
    return kind is ProbeKind.LIVENESS and now.is_decided and now.value is False
