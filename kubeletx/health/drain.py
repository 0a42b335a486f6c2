"""Drain of the node before an operation of a user or an update: asked of the node agent, waited for within limits. Pure.

    NONE ─► ASKED ─► DRAINING ─► DRAINED
              │          ├─────► FAILED    (held until the next order asks again)
              └──────────┴─────► SKIPPED   (no drain here, agent silent, limit over)

DRAINED and SKIPPED let the operation or the update begin, and the request stays until the node is booted, so that no pod
comes back before. States and requesters are those of EVE (NodeDrainStatus). An agent that is not kubeletx is asked by the
controller, not by the guardian; the guardian only waits for it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from .config import HealthSettings


class DrainState(enum.IntEnum):
    """State that an agent reports of a drain."""

    UNKNOWN = 0
    NOTSUPPORTED = 1
    NOTREQUESTED = 2
    REQUESTED = 3
    STARTING = 4
    CORDONED = 5
    FAILEDCORDON = 6
    DRAINRETRYING = 7
    FAILEDDRAIN = 8
    COMPLETE = 9


class DrainRequester(enum.IntEnum):
    """Purpose of a drain."""

    NONE = 1
    DEVICEOP = 2
    UPDATE = 3


FAILURES: Final = frozenset({DrainState.FAILEDCORDON, DrainState.FAILEDDRAIN})
UNDER_WAY: Final = frozenset(
    {DrainState.REQUESTED, DrainState.STARTING, DrainState.CORDONED, DrainState.DRAINRETRYING}
)


class NodeDrain(msgspec.Struct, frozen=True):
    """Last report of an agent. `at`: its second; None: of an agent that the guardian does not ask."""

    state: DrainState
    requester: DrainRequester = DrainRequester.NONE
    at: int | None = None


class DrainPhase(enum.StrEnum):
    """Phase of the guardian's wait, see the drawing at the top of this file."""

    NONE = "None"
    """Nothing waits for a drain."""
    ASKED = "Asked"
    DRAINING = "Draining"
    DRAINED = "Drained"
    SKIPPED = "Skipped"
    FAILED = "Failed"


class DrainCause(enum.StrEnum):
    """Reason for a change of phase; the values are the labels of the drawing in docs/states.md."""

    WAITED_FOR = "an operation or an install needs a drain"
    BEGUN = "the agent drains"
    COMPLETE = "the agent reports COMPLETE"
    FAILURE = "the agent reports FAILEDCORDON or FAILEDDRAIN"
    SKIPPED = "no agent drains, or a limit is over"
    ORDERED = "the next order"
    WITHDRAWN = "nothing waits any more"


_P, _C = DrainPhase, DrainCause
TABLE: Final[Mapping[tuple[DrainPhase, DrainCause], DrainPhase]] = {
    (_P.NONE, _C.WAITED_FOR): _P.ASKED,
    (_P.ASKED, _C.BEGUN): _P.DRAINING,
    (_P.ASKED, _C.COMPLETE): _P.DRAINED,
    (_P.ASKED, _C.FAILURE): _P.FAILED,
    (_P.ASKED, _C.SKIPPED): _P.SKIPPED,
    (_P.DRAINING, _C.COMPLETE): _P.DRAINED,
    (_P.DRAINING, _C.FAILURE): _P.FAILED,
    (_P.DRAINING, _C.SKIPPED): _P.SKIPPED,
    (_P.FAILED, _C.BEGUN): _P.DRAINING,
    (_P.FAILED, _C.COMPLETE): _P.DRAINED,
    (_P.FAILED, _C.ORDERED): _P.ASKED,
    **{(phase, _C.WITHDRAWN): _P.NONE for phase in _P if phase is not _P.NONE},
}


class DrainHold(msgspec.Struct, frozen=True, kw_only=True):
    """A wait for a drain. `since`: second at which `phase` began; `answered`: second of the agent's last status of the drain.

    `reason`: one line for users, about `phase`.
    """

    phase: DrainPhase = DrainPhase.NONE
    requester: DrainRequester = DrainRequester.NONE
    since: int = 0
    answered: int = 0
    reason: str = ""

    @property
    def held_by(self) -> str:
        """Reason for which the operation or the update does not begin; empty: it may."""
        may_begin = self.phase in {DrainPhase.NONE, DrainPhase.DRAINED, DrainPhase.SKIPPED}
        return "" if may_begin else self.reason

    @property
    def request(self) -> DrainRequester:
        """Requester that the agent sees. A failed request is withdrawn."""
        return DrainRequester.NONE if self.phase is DrainPhase.FAILED else self.requester


def wait(
    hold: DrainHold,
    requester: DrainRequester,
    seen: NodeDrain | None,
    now: int,
    settings: HealthSettings,
    *,
    is_new_order: bool = False,
) -> DrainHold:
    """Return the hold at this tick, because `requester` waits for a drain. A second requester joins the first one's drain.

    `is_new_order`: of a user or the controller; it asks again after a failure.
    """
    if hold.phase is DrainPhase.FAILED and is_new_order:
        hold = _go(hold, DrainCause.ORDERED, now, "the agent is asked to drain the node again")
    if hold.phase is DrainPhase.NONE:
        hold = _go(hold, DrainCause.WAITED_FOR, now, "the agent is asked to drain the node")
        hold = replace(hold, requester=requester)
    state = _state(hold.requester, seen)
    if hold.phase in {DrainPhase.DRAINED, DrainPhase.SKIPPED}:
        return hold
    if state is DrainState.COMPLETE:
        return _go(hold, DrainCause.COMPLETE, now, "the node is drained")
    if state in UNDER_WAY:
        text = f"the node is being drained: {state.name}"
        if hold.phase is not DrainPhase.DRAINING:
            hold = _go(hold, DrainCause.BEGUN, now, text)
        hold = replace(hold, reason=text, answered=now if seen is None or seen.at is None else seen.at)
    if hold.phase is DrainPhase.FAILED:
        return hold
    if state in FAILURES:
        return _go(hold, DrainCause.FAILURE, now, f"the drain failed: {state.name}; order it again")
    if over := _over(hold, state, now, settings):
        return _go(hold, DrainCause.SKIPPED, now, over)
    return hold


def is_in_progress(seen: NodeDrain | None) -> bool:
    """Return EVE's WaitDrainInProgress: a drain for a device operation is not complete."""
    if seen is None or seen.requester is not DrainRequester.DEVICEOP:
        return False
    return seen.state in UNDER_WAY | FAILURES


def _state(requester: DrainRequester, seen: NodeDrain | None) -> DrainState:
    """Return the agent's report as far as it is about this request."""
    if seen is None or seen.state is DrainState.NOTSUPPORTED:
        return DrainState.UNKNOWN
    if seen.requester is requester:
        return seen.state
    return DrainState.UNKNOWN if seen.at is None else DrainState.NOTREQUESTED


def _over(hold: DrainHold, state: DrainState, now: int, settings: HealthSettings) -> str:
    """Return why the drain is not waited for any more; empty: it is."""
    if hold.phase is DrainPhase.ASKED and state is DrainState.UNKNOWN:
        return "no agent drains this node"
    limit = settings.number("drain.skip.k8sapinotreachable.timeout")
    if hold.phase is DrainPhase.ASKED:
        return f"no drain has begun within {limit} s" if now - hold.since > limit else ""
    hours = settings.number("kubernetes.drain.timeout")
    if now - hold.since > hours * 3600:
        return f"the drain was not complete within {hours} h"
    return f"the agent that drains the node was silent for {limit} s" if now - hold.answered > limit else ""


def _go(hold: DrainHold, cause: DrainCause, now: int, reason: str) -> DrainHold:
    return replace(hold, phase=TABLE[hold.phase, cause], since=now, reason=reason)
