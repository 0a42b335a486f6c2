"""`Plan`, the next actions for a pod, and `Draft`, the builder that collects them.

All rules in `pods.plan` and `pods.workloads` add their actions to one draft. Pure.
"""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from kubeletx.api import UnitSummary

from .actions import Action, Look, ReadOverrides, StopUnit
from .facts import ActionFailure, Now, PodFacts
from .repeats import due_at


class Goal(enum.Enum):
    """Goal of a plan for a pod.

    RUN: its containers should run. END: stop them, but keep status and logs. DELETE: stop and remove everything of
    the pod. See `plan.pod`.
    """

    RUN = "run"
    END = "end"
    DELETE = "delete"


class PlannedEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Kubernetes event about the pod that the worker has to record. `type`: Normal or Warning."""

    reason: str
    message: str
    type: str = "Warning"


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Result of planning for one pod: the actions to start now, and when to plan again.

    `wake_at`: monotonic time at which to plan again even if nothing changed; None: plan again only when something
    changes. `finished`: the pod is gone, and its worker may end. `goal` and `why` are for the log and `describe`.
    `notice`: event with the reason that the pod waits. `refusals`: events about requested changes that the
    runtime cannot make.
    """

    goal: Goal
    actions: tuple[Action, ...] = ()
    cancels: tuple[str, ...] = ()
    """Keys of revocable actions in flight (`Action.revocable`) to cancel, because they lead away from what is wanted."""
    wake_at: float | None = None
    finished: bool = False
    why: str = ""
    notice: PlannedEvent | None = None
    refusals: tuple[PlannedEvent, ...] = ()
    is_partial: bool = False
    """True if the plan first needs the pod's present state from its runtime; `refusals` may then be incomplete."""
    in_doubt: bool = False
    """True if the runtime does not show parts of the pod and more reads must confirm it; the status stays as it is."""


class Draft:
    """Builder of a `Plan`: collects actions whose key is neither in flight nor planned, and wake-up times."""

    def __init__(self, goal: Goal, facts: PodFacts, now: Now) -> None:
        self.goal, self.now = goal, now
        self._busy = set(facts.in_flight)
        self._revocable = facts.revocable
        self._cancels: set[str] = set()
        self._stop_failure = facts.stop_failure
        self._overrides_failure = facts.overrides_failure
        self._repeats = facts.repeats
        self._actions: list[Action] = []
        self._wake_at: float | None = None
        self.notice: PlannedEvent | None = None
        self._refusals: list[PlannedEvent] = []

    @property
    def is_cancelling(self) -> bool:
        return bool(self._cancels)

    def is_busy(self, key: str) -> bool:
        """Return True if an action with this key is in flight or already planned."""
        return key in self._busy

    def has_planned(self, kind: type[Action]) -> bool:
        """Return True if an action of this class was added to this draft."""
        return any(isinstance(action, kind) for action in self._actions)

    def do(self, action: Action) -> None:
        """Plan the action unless one with the same key is in flight or already planned.

        If earlier runs succeeded without effect, it must wait (see `repeats`): then only a wake-up at the end of
        the wait is planned.
        """
        if action.key in self._busy:
            return
        due = due_at(self._repeats, action)
        if due is not None and due > self.now.mono:
            self.wake(due)
            return
        self._busy.add(action.key)
        self._actions.append(action)

    def read_overrides(self) -> None:
        """Plan to read the overrides file. After a failed read, wait first until its back-off has passed."""
        if self.is_due(self._overrides_failure):
            self.do(ReadOverrides())

    def end(self, action: Action) -> None:
        """Plan a stop or removal. After a failure of any stop or removal, wait first until its back-off has passed.

        A revocable action in flight with the same key is cancelled; the stop follows when it has ended.
        """
        if self.is_due(self._stop_failure):
            self.cancel(action.key)
            self.do(action)

    def stop(self, unit: UnitSummary, facts: PodFacts, reason: str, message: str, **fields: Any) -> None:
        """Plan to stop the unit with the pod's grace period, see `end`. `fields`: further fields of `StopUnit`."""
        fields = {"grace_seconds": facts.grace_seconds, **fields}
        self.end(StopUnit(name=unit.name, unit_id=unit.id, reason=reason, message=message, **fields))

    def cancel(self, key: str) -> None:
        """Plan to cancel the action in flight with this key if it is revocable; otherwise it runs on."""
        if key in self._revocable:
            self._cancels.add(key)

    def look(self, facts: PodFacts) -> None:
        """Plan to read the pod's state from its runtime.

        If the read is scheduled for later (`look_wanted_at`), as after a failed read, plan a wake-up then.
        """
        if facts.look_wanted_at is not None and facts.look_wanted_at > self.now.mono:
            self.wake(facts.look_wanted_at)
        else:
            self.do(Look())

    def refuse(self, reason: str, message: str) -> None:
        """Add a warning event that the runtime cannot make a requested change; the worker records it once."""
        self._refusals.append(PlannedEvent(reason=reason, message=message))

    def wake(self, at: float | None) -> None:
        """Request that the pod is planned again at monotonic time `at` or earlier; None requests nothing."""
        if at is not None and (self._wake_at is None or at < self._wake_at):
            self._wake_at = at

    def is_due(self, failure: ActionFailure | None) -> bool:
        """Return True if there is no failure or its back-off has passed.

        Otherwise return False, and request a wake-up at the failure's `retry_at`, if that is set.
        """
        if failure is None:
            return True
        if failure.retry_at is None:
            return False
        if failure.retry_at <= self.now.mono:
            return True
        self.wake(failure.retry_at)
        return False

    def plan(
        self, why: str = "", *, finished: bool = False, is_partial: bool = False, in_doubt: bool = False
    ) -> Plan:
        """Build the plan from everything collected so far; `Plan` explains the parameters."""
        return Plan(
            goal=self.goal,
            actions=tuple(self._actions),
            cancels=tuple(sorted(self._cancels)),
            wake_at=self._wake_at,
            finished=finished,
            why=why,
            notice=self.notice,
            refusals=tuple(self._refusals),
            is_partial=is_partial,
            in_doubt=in_doubt,
        )
