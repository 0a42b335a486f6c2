"""`Draft`, which collects actions, and `Plan`, its result, with its `Goal`.

All rules of `plan` and `workloads` add to one draft. Pure.
"""

from __future__ import annotations

import enum

import msgspec

from .actions import Action, Look
from .facts import ActionFailure, Now, PodFacts
from .pacing import due_at


class Goal(enum.Enum):
    """Goal of a plan: RUN, END or DELETE; see `plan.pod`."""

    RUN = "run"
    END = "end"
    DELETE = "delete"


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Event for the pod's users, recorded once. `type`: Normal or Warning."""

    reason: str
    message: str
    type: str = "Warning"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Actions to start, and when to plan again.

    `wake_at`: monotonic time to plan again without any input; None: only on input. `finished`: the worker may end.
    `goal` and `why` are for the log and `describe`. `notice`: why the pod waits; `refusals`: wanted changes that its
    runtime cannot make.
    """

    goal: Goal
    actions: tuple[Action, ...] = ()
    wake_at: float | None = None
    finished: bool = False
    why: str = ""
    notice: Notice | None = None
    refusals: tuple[Notice, ...] = ()
    is_partial: bool = False
    """True while the plan waits for a look; `refusals` may then be incomplete."""


class Draft:
    """Builder of a plan: collects wake-up times, and actions whose key is not in flight or planned."""

    def __init__(self, goal: Goal, facts: PodFacts, now: Now) -> None:
        self.goal, self.now = goal, now
        self._busy = set(facts.in_flight)
        self._stop_failure = facts.stop_failure
        self._paces = facts.paces
        self._actions: list[Action] = []
        self._wake_at: float | None = None
        self.notice: Notice | None = None
        self._refusals: list[Notice] = []

    def is_busy(self, key: str) -> bool:
        """Return True if the key is in flight or planned already."""
        return key in self._busy

    def do(self, action: Action) -> None:
        """Plan the action unless its key is in flight or planned.

        If it was done before without effect, it is planned only after a pause (`pacing`), with a wake-up
        until then.
        """
        if action.key in self._busy:
            return
        due = due_at(self._paces, action)
        if due is not None and due > self.now.mono:
            self.wake(due)
            return
        self._busy.add(action.key)
        self._actions.append(action)

    def end(self, action: Action) -> None:
        """Plan a stop or removal; after a failed one only once its back-off has passed."""
        if self.is_due(self._stop_failure):
            self.do(action)

    def look(self, facts: PodFacts) -> None:
        """Plan a look now or, if one is wanted later (as after a failed look), a wake-up at that time."""
        if facts.look_wanted_at is not None and facts.look_wanted_at > self.now.mono:
            self.wake(facts.look_wanted_at)
        else:
            self.do(Look())

    def refuse(self, reason: str, message: str) -> None:
        """Add an event, recorded once, which says that the runtime cannot make a wanted change."""
        self._refusals.append(Notice(reason=reason, message=message))

    def wake(self, at: float | None) -> None:
        """Plan again at this monotonic time at the latest; None adds nothing."""
        if at is not None and (self._wake_at is None or at < self._wake_at):
            self._wake_at = at

    def is_due(self, failure: ActionFailure | None) -> bool:
        """Return True if there is no failure or its back-off has passed.

        Otherwise plan a wake-up at `retry_at`, if any.
        """
        if failure is None:
            return True
        if failure.retry_at is None:
            return False
        if failure.retry_at <= self.now.mono:
            return True
        self.wake(failure.retry_at)
        return False

    def plan(self, why: str = "", *, finished: bool = False, is_partial: bool = False) -> Plan:
        """Return the plan with everything collected; for the parameters see `Plan`."""
        return Plan(
            goal=self.goal,
            actions=tuple(self._actions),
            wake_at=self._wake_at,
            finished=finished,
            why=why,
            notice=self.notice,
            refusals=tuple(self._refusals),
            is_partial=is_partial,
        )
