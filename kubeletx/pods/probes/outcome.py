"""Evaluation of probe results: thresholds, initial values, end of probing (P1 to P4 in docs/kubelet-parity.md). Pure.

Each probe has a value: ready or not, alive or not, started or not yet. `success_threshold` successes in a row make it
True, `failure_threshold` failures in a row make it False. An attempt without an answer (an error, a runtime that does
not answer) counts as neither and does not interrupt the row. Source: kubelet, prober/worker.go.
"""

from __future__ import annotations

import enum

import msgspec

from kubeletx.kube.types.core import Probe


class ProbeKind(enum.Enum):
    """Kind of a probe. The values are used in messages."""

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
    """No answer could be obtained, and that is not the container's fault; tried up to three times in an attempt."""
    SUSPENDED = "suspended"
    """The probe cannot run now (the runtime does not answer, the pod has no address).

    No event is recorded and the attempt is not repeated before the next period.
    """


class ProbeResult(msgspec.Struct, frozen=True):
    """Result of one probe attempt: its outcome in `result`, and a text for events in `message`."""

    result: ProbeOutcome
    message: str = ""

    @property
    def counts(self) -> bool:
        """True if the attempt counts towards a threshold: SUCCESS, WARNING (as a success) or FAILURE."""
        return self.result not in (ProbeOutcome.UNKNOWN, ProbeOutcome.SUSPENDED)


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """Periods and thresholds of a probe, with the Kubernetes API's defaults."""

    initial_delay_seconds: int = 0
    period_seconds: int = 10
    timeout_seconds: int = 1
    success_threshold: int = 1
    failure_threshold: int = 3

    @classmethod
    def of(cls, probe: Probe) -> Timing:
        """Read the probe's numbers. A missing or zero number becomes the default; an initial delay of 0 stays."""
        return cls(
            initial_delay_seconds=max(probe.initial_delay_seconds or 0, 0),
            period_seconds=max(probe.period_seconds or 10, 1),
            timeout_seconds=max(probe.timeout_seconds or 1, 1),
            success_threshold=max(probe.success_threshold or 1, 1),
            failure_threshold=max(probe.failure_threshold or 3, 1),
        )


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """State of one probe after the attempts so far.

    `value`: True for passed, False for failed; None while a startup probe is undecided. `is_decided`: a threshold was
    reached, so that `value` is no longer the initial one. `last`: the last answer that counted (True: success); None
    before the first. `row`: number of consecutive answers equal to `last`.
    """

    value: bool | None
    is_decided: bool = False
    last: bool | None = None
    row: int = 0


def first_tally(kind: ProbeKind, before: bool | None = None) -> Tally:
    """Return the state of a probe before its first answer: readiness False, liveness True, startup None.

    `before`: if not None, the value that the same container had before the agent restarted; it is used instead.
    Source: docs/kubelet-parity.md, row P2.
    """
    if before is not None:
        return Tally(value=before)
    return Tally(value={ProbeKind.READINESS: False, ProbeKind.LIVENESS: True}.get(kind))


def tally(before: Tally, answer: ProbeResult, timing: Timing) -> Tally:
    """Return the state of the probe after one more result; `before` itself if the result does not count."""
    if not answer.counts:
        return before
    passed = answer.result is not ProbeOutcome.FAILURE
    row = before.row + 1 if before.last is passed else 1
    needed = timing.success_threshold if passed else timing.failure_threshold
    if row < needed:
        return Tally(value=before.value, is_decided=before.is_decided, last=passed, row=row)
    return Tally(value=passed, is_decided=True, last=passed, row=row)


def is_on_hold(kind: ProbeKind, now: Tally) -> bool:
    """Return True if the probe makes no more attempts until its container is restarted or its machine reboots.

    This is so after a liveness probe has failed, and after a startup probe has passed or failed.
    """
    if kind is ProbeKind.STARTUP:
        return now.is_decided
    return kind is ProbeKind.LIVENESS and now.is_decided and now.value is False
