"""Readiness, liveness and startup probes: how they ask, what the answers mean, when they run."""

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
