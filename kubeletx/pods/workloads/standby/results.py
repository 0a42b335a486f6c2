"""Results of freezing, hibernating and thawing, and the change that each makes to the facts. See `model.results`."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import KubeletxError, Unsupported
from kubeletx.api.names import Event

from ...model.backoff import SYNC
from ...model.facts import ActionFailure, Now, PodFacts
from ...model.results import Result, next_try
from .actions import SetStandby, StandbyStep
from .facts import StandbyChange, StandbyFacts, standby_of


class StandbySet(Result, frozen=True):
    """Container `name` was frozen, hibernated or thawed. `step`: a value of `StandbyStep`.

    `began_at`, `ended_at`: monotonic start and end of the call. `memory`: bytes before and after a hibernation; None
    for other steps and if they were not measured.
    """

    name: str
    step: str
    began_at: float
    ended_at: float
    memory: tuple[int, int] | None = None

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        known = standby_of(facts)
        memory = {key: figures for key, figures in known.memory.items() if key != self.name}
        if self.memory is not None:
            memory[self.name] = self.memory
        facts = replace(facts, own=replace(self._with_change(known), memory=memory))
        return _with_failure(replace(facts, changed_at=now.mono), self.name, self.step, None)

    def _with_change(self, known: StandbyFacts) -> StandbyFacts:
        """Return the facts with this call added to the change of the pod that it belongs to."""
        last, change = known.last, known.under_way
        if last is not None and last.step == self.step and self.began_at < last.ended_at:
            # A look showed the new state of this container before its call returned.
            return replace(known, last=replace(last, ended_at=max(last.ended_at, self.ended_at)))
        if change is None or change.step != self.step:
            change = StandbyChange(step=self.step, began_at=self.began_at, ended_at=self.ended_at)
        began_at, ended_at = min(change.began_at, self.began_at), max(change.ended_at, self.ended_at)
        return replace(known, under_way=replace(change, began_at=began_at, ended_at=ended_at))


class StandbyFailed(Result, frozen=True):
    """Freezing, hibernating or thawing container `name` failed or got no answer.

    `step`: a value of `StandbyStep`. `may_heal` True: it is retried with back-off. False: it is retried only after a
    user edited the pod.
    """

    name: str
    step: str
    reason: str
    message: str
    may_heal: bool = True

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        before = _failures(facts, self.step).get(self.name)
        failure = next_try(before, SYNC, self.reason, self.message, now)
        if not self.may_heal:
            failure = replace(failure, retry_at=None)
        facts = replace(facts, changed_at=now.mono, look_wanted_at=now.mono)
        return _with_failure(facts, self.name, self.step, failure)


class StandbyAsked(Result, frozen=True):
    """A command requested a state. Forgets failed calls, so that the plan makes calls again that it would not retry."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        known = facts.of(StandbyFacts)
        if known is None or not (known.rest_failures or known.thaw_failures):
            return facts
        return replace(facts, own=replace(known, rest_failures={}, thaw_failures={}))


def standby_failed(action: SetStandby, error: KubeletxError) -> StandbyFailed:
    """Return the result of a call that failed with this error.

    A freeze that the runtime does not support is not tried again. A thaw always is: a runtime that has just come back
    may not have the capability yet, and a pod that should run is never left frozen.
    """
    reason = error.reason or Event.FAILED_POWER
    may_heal = _is_thaw(action.step) or not isinstance(error, Unsupported)
    return StandbyFailed(action.name, action.step, reason, str(error), may_heal)


def _is_thaw(step: str) -> bool:
    return step == StandbyStep.THAW.value


def _failures(facts: PodFacts, step: str) -> dict[str, ActionFailure]:
    known = standby_of(facts)
    return known.thaw_failures if _is_thaw(step) else known.rest_failures


def _with_failure(facts: PodFacts, name: str, step: str, failure: ActionFailure | None) -> PodFacts:
    failures = {key: other for key, other in _failures(facts, step).items() if key != name}
    if failure is not None:
        failures[name] = failure
    known = standby_of(facts)
    if _is_thaw(step):
        return replace(facts, own=replace(known, thaw_failures=failures))
    return replace(facts, own=replace(known, rest_failures=failures))
