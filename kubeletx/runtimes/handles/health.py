"""Usability of a runtime: `RuntimeState`, and the pure rule that derives it from probes.

            none succeeds for the grace (10 s), and two failed
    reachable ───────────────────────────────────────────────▶ unreachable
              ◀───────────────────────────────────────────────
                            one probe succeeds

A runtime that answers is as ready as it reports, immediately. One that does not answer keeps its last report until
the outage is certain, so that a late answer or a restart of the runtime changes nothing, and an outage changes
readiness once. With a grace below 10 s, a single failed probe is an outage too if the last answer is 10 s old.
"""

from __future__ import annotations

import math
from datetime import datetime

import msgspec

from kubeletx.api import RuntimeHealth

FAILED_PROBES = 2
SILENT_SECONDS = 10.0


class RuntimeState(msgspec.Struct, frozen=True, kw_only=True):
    """Current state of one runtime.

    `ready`: reachable, and its own health call reports ready. `since`: time of the last change of `ready`. `reason` and
    `message`: why it, or its network, is not ready; empty if both are. `handlers`: those it reported last. `cordoned`:
    gets no new pods, set by an operator; it may still be ready.
    """

    ready: bool = False
    network_ready: bool = False
    reachable: bool = False
    cordoned: bool = False
    reason: str = "NotConnected"
    message: str = "not connected yet"
    since: datetime
    handlers: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True if the runtime and its network are ready, as in the node's conditions and ``get runtimes``."""
        return self.ready and self.network_ready


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a probe of the runtime that got no answer. `reason`, `message`: of its error."""

    reason: str
    message: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime's state, and the history on which its next state depends.

    `failures`: number of probes without an answer since the last answer. `heard_at`: monotonic time of the last answer;
    None before the first.
    """

    state: RuntimeState
    failures: int = 0
    heard_at: float | None = None


def step(
    health: Health,
    outcome: RuntimeHealth | Silence,
    *,
    wall: datetime,
    mono: float,
    grace_seconds: float = 0.0,
) -> Health:
    """Compute the health after one probe. `grace_seconds`: silence up to this is no outage, however many probes fail."""
    if isinstance(outcome, Silence):
        return _after_silence(health, outcome, wall=wall, mono=mono, grace_seconds=grace_seconds)
    old = health.state
    ready = outcome.runtime_ready
    reason, message = _why(outcome)
    state = RuntimeState(
        ready=ready,
        network_ready=outcome.network_ready,
        reachable=True,
        cordoned=old.cordoned,
        reason=reason,
        message=message,
        since=old.since if old.ready == ready else wall,
        handlers=outcome.handlers,
    )
    return Health(state=state, failures=0, heard_at=mono)


def cordon(health: Health, cordoned: bool) -> Health:
    """Return the health with the cordon set or lifted."""
    return msgspec.structs.replace(health, state=msgspec.structs.replace(health.state, cordoned=cordoned))


def _after_silence(
    health: Health, silence: Silence, *, wall: datetime, mono: float, grace_seconds: float
) -> Health:
    old = health.state
    failures = health.failures + 1
    silent_for = mono - health.heard_at if health.heard_at is not None else math.inf
    failed_often = failures >= FAILED_PROBES and silent_for >= grace_seconds
    is_outage = failed_often or silent_for >= max(SILENT_SECONDS, grace_seconds)
    if old.reachable and not is_outage:
        return msgspec.structs.replace(health, failures=failures)
    state = msgspec.structs.replace(
        old,
        ready=False,
        network_ready=False,
        reachable=False,
        reason=silence.reason,
        message=silence.message,
        since=wall if old.ready else old.since,
    )
    return Health(state=state, failures=failures, heard_at=health.heard_at)


def _why(outcome: RuntimeHealth) -> tuple[str, str]:
    if outcome.runtime_ready and outcome.network_ready:
        return "", ""
    reason = "RuntimeNotReady" if not outcome.runtime_ready else "NetworkNotReady"
    return reason, outcome.message or f"the runtime reports {reason}"
