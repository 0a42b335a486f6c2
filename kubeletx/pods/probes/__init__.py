"""Readiness, liveness and startup probes: requests, evaluation of the answers, and schedule."""

from .outcome import ProbeKind, ProbeOutcome, ProbeResult, Tally, Timing, first_tally, is_on_hold, tally
from .targets import ProbeTarget, targets_of
from .worker import ProbeSet

__all__ = [
    "ProbeKind",
    "ProbeOutcome",
    "ProbeResult",
    "ProbeSet",
    "ProbeTarget",
    "Tally",
    "Timing",
    "first_tally",
    "is_on_hold",
    "tally",
    "targets_of",
]
