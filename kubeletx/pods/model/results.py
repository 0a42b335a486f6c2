"""Results of actions and inputs of a pod: frozen values, and the change of each to the facts.

A step returns one `Result`; the worker applies it when the action ends: `apply(facts, result, now)`. Results do not
depend on how an action was carried out. They are data: shown, kept as history and replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec
from msgspec.structs import replace

from kubeletx.api import ImageStatus, RuntimeName, UnitId
from kubeletx.kube.types.core import Pod

from .backoff import IMAGE, SANDBOX, SYNC, VOLUME, RetryPolicy, next_backoff, next_failure
from .facts import (
    ActionFailure,
    HookState,
    Now,
    PodFacts,
    ProbeFacts,
    Rejection,
    VolumeFacts,
    Waiting,
)
from .roles import all_units
from .spec_errors import CREATE_CONTAINER_CONFIG_ERROR

LOOK_AGAIN_SECONDS = 1.0


class Result(msgspec.Struct, frozen=True):
    """Outcome of an action, or another input of a pod: a frozen value that changes the facts (`apply`)."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        """The facts after this result, which came at `now`."""
        raise TypeError(f"{type(self).__name__} does not say what it does")


def apply(facts: PodFacts, result: Result, now: Now) -> PodFacts:
    """Return the facts as changed by a result that came at `now`."""
    return result._apply(facts, now)


class Together(Result, frozen=True):
    """Several results, applied in order."""

    results: tuple[Result, ...]

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        for result in self.results:
            facts = result._apply(facts, now)
        return facts


class Nothing(Result, frozen=True):
    """No change beyond what the runtime's snapshot shows."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return facts


class Bound(Result, frozen=True):
    """The pod's binding to a runtime is stored."""

    runtime: RuntimeName
    started_at: datetime

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(
            facts,
            runtime=self.runtime,
            started_at=facts.started_at or self.started_at,
            admitted=True,
            waiting=None,
            bind_wanted=False,
            stop_failure=None,
        )


class Waits(Result, frozen=True):
    """The pod cannot be bound now.

    `Bind` is tried again once a runtime changes, also if that was during the step.
    """

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, waiting=Waiting(reason=self.reason, message=self.message))


class Rejected(Result, frozen=True):
    """The pod is rejected, which is final: it becomes Failed."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(
            facts,
            rejection=Rejection(reason=self.reason, message=self.message),
            waiting=None,
            bind_wanted=False,
            started_at=facts.started_at or now.wall,
        )


class BindFailed(Result, frozen=True):
    """The binding could not be written, or an admission review has not decided.

    `Bind` is retried with back-off.
    """

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.stop_failure, SYNC, self.reason, self.message, now)
        return replace(
            facts,
            stop_failure=failure,
            waiting=Waiting(reason=self.reason, message=self.message),
            bind_wanted=True,
        )


class Unbound(Result, frozen=True):
    """The binding is deleted: the last write for the pod."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, unbound=True)


class VolumesReady(Result, frozen=True):
    """All volumes are prepared, with the content as of `began` (monotonic), the start of the preparation."""

    began: float

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        stale_at = facts.volumes.stale_at
        newer = stale_at if stale_at is not None and stale_at >= self.began else None
        return replace(facts, volumes=VolumeFacts(ready=True, stale_at=newer))


class ObjectsChanged(Result, frozen=True):
    """Cluster objects that the pod refers to changed: volumes are written again.

    A failed volume preparation, and units that failed with a configuration error, are retried at once.
    """

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        volumes = facts.volumes
        if volumes.failure is not None and volumes.failure.retry_at is not None:
            volumes = replace(volumes, failure=replace(volumes.failure, retry_at=now.mono))
        facts = replace(facts, volumes=replace(volumes, stale_at=now.mono))
        for name, unit in facts.units.items():
            failure = unit.failure
            if failure is not None and failure.reason == CREATE_CONTAINER_CONFIG_ERROR:
                facts = _unit(facts, name, failure=replace(failure, retry_at=now.mono))
        return facts


class PodEdited(Result, frozen=True):
    """A user changed the pod: failed actions are retried at once; a changed image loses its back-off (B3)."""

    before: Pod
    after: Pod

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        images = {one.name: one.image for one in all_units(self.before)}
        for one in all_units(self.after):
            known = facts.unit(one.name)
            if known.image_failure is not None and images.get(one.name) != one.image:
                facts = _unit(facts, one.name, image_failure=None)
            if known.failure is not None:
                facts = _unit(facts, one.name, failure=replace(known.failure, retry_at=now.mono))
            if known.resize_failure is not None:
                facts = _unit(
                    facts, one.name, resize_failure=replace(known.resize_failure, retry_at=now.mono)
                )
        return replace(facts, own=facts.own.edited())


class PowerAsked(Result, frozen=True):
    """The owner requests a power state, without a write to the disk.

    An empty `power` withdraws its request.
    """

    owner: str
    power: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        others = {owner: power for owner, power in facts.asked.items() if owner != self.owner}
        return replace(facts, asked={**others, self.owner: self.power} if self.power else others)


class RanBefore(Result, frozen=True):
    """Logs of earlier runs were found. `restarts`: container to the restart count of its next run."""

    restarts: Mapping[str, int]

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        for name, count in self.restarts.items():
            facts = _unit(facts, name, restarts_before=count)
        return facts


class VolumesFailed(Result, frozen=True):
    """Volumes could not be prepared or released."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.volumes.failure, VOLUME, self.reason, self.message, now)
        return replace(facts, volumes=replace(facts.volumes, failure=failure))


class VolumesReleased(Result, frozen=True):
    """Volumes of the pod are released: nothing of them is left on the node."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, volumes=VolumeFacts(released=True))


class DirectoriesGone(Result, frozen=True):
    """Cgroup, log and data directories are removed."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, directories_gone=True, stop_failure=None)


class ImagePresent(Result, frozen=True):
    """The container's image is in the bound store. `status`: its status there."""

    name: str
    status: ImageStatus

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, self.name, image=self.status, image_failure=None)


class ImageFailed(Result, frozen=True):
    """The image is not available. `retry_at`: from the store's own back-off, if it has one."""

    name: str
    reason: str
    message: str
    retry_at: float | None = None

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.unit(self.name).image_failure, IMAGE, self.reason, self.message, now)
        if self.retry_at is not None:
            failure = replace(failure, retry_at=self.retry_at)
        return _unit(facts, self.name, image=None, image_failure=failure)


class SandboxMade(Result, frozen=True):
    """A new sandbox exists; all units start from the beginning in it."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, sandbox_failure=None, changed_at=now.mono)


class SandboxFailed(Result, frozen=True):
    """Creating the sandbox failed or got no answer; a later look shows whether it exists."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.sandbox_failure, SANDBOX, self.reason, self.message, now)
        return replace(facts, sandbox_failure=failure, changed_at=now.mono)


class Unsettled(Result, frozen=True):
    """A changing call timed out and may take effect before `until` (rule 8 of docs/architecture.md)."""

    until: float

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, unsettled_until=max(self.until, facts.unsettled_until or 0.0))


class UnitStarted(Result, frozen=True):
    """The unit runs; its postStart hook, if any, is due."""

    name: str
    unit_id: UnitId
    has_hook: bool

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        facts = _count_restart(facts, self.name, now)
        return _unit(
            replace(facts, changed_at=now.mono),
            self.name,
            failure=None,
            image=None,
            hook=HookState.PENDING if self.has_hook else HookState.NONE,
            hook_unit=self.unit_id,
            probes=None,
            killed="",
        )


class UnitFailed(Result, frozen=True):
    """The unit could not be created or, if `created`, it exists but could not be started."""

    name: str
    reason: str
    message: str
    created: bool

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.unit(self.name).failure, SYNC, self.reason, self.message, now)
        if self.created:
            facts = _unit(_count_restart(facts, self.name, now), self.name, killed="")
        return _unit(replace(facts, changed_at=now.mono), self.name, failure=failure, image=None)


class UnitExited(Result, frozen=True):
    """The container's newest unit has ended, at `exited_at` on the monotonic clock."""

    name: str
    exited_at: float

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, self.name, exited_at=self.exited_at)


class HookNoted(Result, frozen=True):
    """The state of the unit's postStart hook changed. `message`: the error of a FAILED one."""

    name: str
    unit_id: UnitId
    state: HookState
    message: str = ""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = None
        if self.state is HookState.FAILED:
            failure = ActionFailure(reason="PostStartHookError", message=self.message, retry_at=now.mono)
        return _unit(facts, self.name, hook=self.state, hook_unit=self.unit_id, failure=failure)


class MessageRead(Result, frozen=True):
    """The termination message of an ended unit was read.

    The message of the unit before it is kept as well.
    """

    name: str
    unit_id: UnitId
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        known = list(facts.unit(self.name).termination_messages.items())[-1:]
        return _unit(facts, self.name, termination_messages={**dict(known), self.unit_id: self.message})


class Killed(Result, frozen=True):
    """The agent stopped the unit. `reason`: why it is to be restarted; empty: it is not."""

    name: str
    reason: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(replace(facts, changed_at=now.mono, stop_failure=None), self.name, killed=self.reason)


class Probed(Result, frozen=True):
    """A container's probes had new outcomes."""

    name: str
    probes: ProbeFacts

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, self.name, probes=self.probes)


class Resized(Result, frozen=True):
    """A resize of the unit succeeded, or is requested; the failure of an earlier try is dropped."""

    name: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(replace(facts, changed_at=now.mono), self.name, resize_failure=None)


class ResizeFailed(Result, frozen=True):
    """A resize of the unit failed.

    It is retried with back-off; if not `may_heal`, only after the pod was edited.
    """

    name: str
    reason: str
    message: str
    may_heal: bool = True

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.unit(self.name).resize_failure, SYNC, self.reason, self.message, now)
        if not self.may_heal:
            failure = replace(failure, retry_at=None)
        return _unit(replace(facts, changed_at=now.mono), self.name, resize_failure=failure)


class PodResized(Result, frozen=True):
    """The pod as a whole has the resources of its spec."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, changed_at=now.mono, resize_failure=None)


class PodResizeFailed(Result, frozen=True):
    """A resize of the pod as a whole failed; it is retried with back-off."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.resize_failure, SYNC, self.reason, self.message, now)
        return replace(facts, changed_at=now.mono, resize_failure=failure)


class LookWanted(Result, frozen=True):
    """A unit or sandbox is no longer on its runtime: the next action is a look at the pod."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, changed_at=now.mono, look_wanted_at=now.mono)


class Changed(Result, frozen=True):
    """A call that changes something on the runtime succeeded.

    Only a look that begins later shows its effect.
    """

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, changed_at=now.mono, stop_failure=None)


class StopFailed(Result, frozen=True):
    """A stop, a removal or another write failed; it is retried with back-off."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.stop_failure, SYNC, self.reason, self.message, now)
        return replace(facts, stop_failure=failure, changed_at=now.mono)


class LookFailed(Result, frozen=True):
    """A look got no answer, or not all details; it is repeated after `LOOK_AGAIN_SECONDS`."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, look_wanted_at=now.mono + LOOK_AGAIN_SECONDS)


def _unit(facts: PodFacts, name: str, **fields: object) -> PodFacts:
    return replace(facts, units={**facts.units, name: replace(facts.unit(name), **fields)})


def _count_restart(facts: PodFacts, name: str, now: Now) -> PodFacts:
    known = facts.unit(name)
    if known.exited_at is None:
        return facts
    backoff = next_backoff(known.backoff, known.exited_at, now=now.mono, cap=facts.crash_cap_seconds)
    return _unit(facts, name, backoff=backoff, exited_at=None)


def next_try(
    previous: ActionFailure | None, policy: RetryPolicy, reason: str, message: str, now: Now
) -> ActionFailure:
    """The failure after `previous`, with the time of its next try."""
    return next_failure(previous, policy, reason=reason, message=message, now=now.mono, draw=now.draw)
