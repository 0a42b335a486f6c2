"""`RuntimeState`: whether a runtime can be used. `step` computes it from the results of health probes. Pure.

            no probe succeeds for the grace period (10 s), and two failed
    reachable ──────────────────────────────────────────────────────────▶ unreachable
              ◀──────────────────────────────────────────────────────────
                                  one probe succeeds

When a runtime answers a probe, its state becomes what it reports at once. When it does not answer, the state stays as
last reported until the outage is certain. A late answer or a restart of the runtime therefore changes nothing. With a
grace period below 10 s, a single failed probe is an outage too if the last answer is 10 s old.
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

    `ready`: the runtime is reachable and reports ready. `network_ready`: it reports that the pod network is ready.
    `since`: time of the last change of `ready`. `reason` and `message`: why the runtime or its network is not ready;
    empty if both are ready. `handlers`: the runtime handlers that it reported last. `cordoned`: an operator allows no
    new pods on it; it may be ready all the same.
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
        """True if the runtime and its network are ready, as in the node's conditions and `kubeletx get runtimes`."""
        return self.ready and self.network_ready


class Silence(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a health probe that got no answer. `reason`, `message`: of the error that the probe raised."""

    reason: str
    message: str


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A runtime's state, and the history of probes on which its next state depends.

    `failures`: number of failed probes since the last answer. `answered_at`: monotonic time of the last answer; None
    before the first.
    """

    state: RuntimeState
    failures: int = 0
    answered_at: float | None = None


def step(
    health: Health,
    outcome: RuntimeHealth | Silence,
    *,
    wall: datetime,
    mono: float,
    grace_seconds: float = 0.0,
) -> Health:
    """Return the health after one probe. `outcome`: its answer, or `Silence`.

    `wall`, `mono`: wall-clock and monotonic time of the probe. `grace_seconds`: time without an answer that does not
    yet make the runtime unreachable, however many probes fail.
    """
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
    return Health(state=state, failures=0, answered_at=mono)


def cordon(health: Health, cordoned: bool) -> Health:
    """Return `health` with the cordon of its state set or lifted."""
    return msgspec.structs.replace(health, state=msgspec.structs.replace(health.state, cordoned=cordoned))


def _after_silence(
    health: Health, silence: Silence, *, wall: datetime, mono: float, grace_seconds: float
) -> Health:
    old = health.state
    failures = health.failures + 1
    silent_for = mono - health.answered_at if health.answered_at is not None else math.inf
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
    return Health(state=state, failures=failures, answered_at=health.answered_at)


def _why(outcome: RuntimeHealth) -> tuple[str, str]:
    if outcome.runtime_ready and outcome.network_ready:
        return "", ""
    reason = "RuntimeNotReady" if not outcome.runtime_ready else "NetworkNotReady"
    return reason, outcome.message or f"the runtime reports {reason}"
