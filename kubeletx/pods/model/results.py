"""`Result` and its subclasses: outcomes of a pod's actions, and other inputs, which change the pod's facts.

Each action is carried out by a step (`pods.steps`), which returns one `Result`. The pod's worker then updates its
facts: `apply(facts, result, now)`. Results are frozen values, so they can be shown, kept in the pod's history and
replayed. Failures are retried with the back-off policies of `backoff`.
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
from .roles import all_units, changed_images
from .spec_errors import CREATE_CONTAINER_CONFIG_ERROR

LOOK_AGAIN_SECONDS = 1.0


class Result(msgspec.Struct, frozen=True):
    """Base of all results: the outcome of an action, or another input. `apply` makes the change to the facts."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        """Return the facts changed by this result, which arrived at `now`."""
        raise TypeError(f"{type(self).__name__} does not say what it does")


def apply(facts: PodFacts, result: Result, now: Now) -> PodFacts:
    """Return a copy of the facts, changed by a result that arrived at `now`."""
    return result._apply(facts, now)


class Together(Result, frozen=True):
    """Several results of one action, applied in order."""

    results: tuple[Result, ...]

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        for result in self.results:
            facts = result._apply(facts, now)
        return facts


class Nothing(Result, frozen=True):
    """The action ended, and no facts need to change."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return facts


class Bound(Result, frozen=True):
    """The pod was assigned to `runtime`, and this binding is stored. `started_at`: value for status.startTime."""

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
            bind_failure=None,
        )


class Waits(Result, frozen=True):
    """The pod cannot be assigned to a runtime yet and waits. `reason` and `message` are shown to users.

    `Bind` is tried again after a runtime or the pod changed, even if the change came while this `Bind` was running.
    """

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, waiting=Waiting(reason=self.reason, message=self.message))


class Rejected(Result, frozen=True):
    """The node rejected the pod for good: it becomes Failed with this reason and message."""

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
    """The binding to a runtime could not be stored, or a plugin's admission review has not decided yet.

    `Bind` is retried with back-off.
    """

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.bind_failure, SYNC, self.reason, self.message, now)
        return replace(
            facts,
            bind_failure=failure,
            waiting=Waiting(reason=self.reason, message=self.message),
            bind_wanted=True,
        )


class Unbound(Result, frozen=True):
    """The binding to the runtime is deleted. The pod is gone, and its worker ends."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, unbound=True)


class VolumesReady(Result, frozen=True):
    """All volumes are prepared. `began`: monotonic start of the preparation.

    If a config map, secret or pod field changed after `began`, the volumes are written again.
    """

    began: float

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        stale_at = facts.volumes.stale_at
        newer = stale_at if stale_at is not None and stale_at >= self.began else None
        return replace(facts, volumes=VolumeFacts(ready=True, stale_at=newer))


class ObjectsChanged(Result, frozen=True):
    """A config map, a secret or another cluster object that the pod refers to changed.

    The volumes are written again. A failed volume preparation, and containers that failed with a configuration
    error, are retried at once.
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
    """A user changed the pod from `before` to `after`: failed starts and resizes are retried at once.

    A container with a new image also loses its image pull failure and its back-offs (docs/kubelet-parity.md, rows B1
    and B3): they belong to the container's hash.
    """

    before: Pod
    after: Pod

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        for name in changed_images(self.before, self.after):
            facts = _unit(facts, name, image=None, image_failure=None, backoff=None)
        for unit in all_units(self.after):
            known = facts.unit(unit.name)
            if known.failure is not None:
                facts = _unit(facts, unit.name, failure=replace(known.failure, retry_at=now.mono))
            if known.resize_failure is not None:
                facts = _unit(
                    facts, unit.name, resize_failure=replace(known.resize_failure, retry_at=now.mono)
                )
        return replace(facts, own=facts.own.edited())


class PowerAsked(Result, frozen=True):
    """Requester `owner` wants the pod in a power state, such as ``standby``; an empty `power` withdraws the request.

    The request is kept in memory only. `workloads.power` chooses among several requests.
    """

    owner: str
    power: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        others = {owner: power for owner, power in facts.asked.items() if owner != self.owner}
        return replace(facts, asked={**others, self.owner: self.power} if self.power else others)


class EarlierRuns(Result, frozen=True):
    """Log files of earlier runs were found. `restarts`: container name → restart count of its next run."""

    restarts: Mapping[str, int]

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        for name, count in self.restarts.items():
            facts = _unit(facts, name, restarts_before=count)
        return facts


class VolumesFailed(Result, frozen=True):
    """Volumes could not be prepared; retried with back-off."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.volumes.failure, VOLUME, self.reason, self.message, now)
        return replace(facts, volumes=replace(facts.volumes, failure=failure))


class ReleaseFailed(Result, frozen=True):
    """Volumes could not be released; retried with back-off, which does not depend on failures of their preparation."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.volumes.release_failure, VOLUME, self.reason, self.message, now)
        return replace(facts, volumes=replace(facts.volumes, release_failure=failure))


class VolumesReleased(Result, frozen=True):
    """The pod's volumes are unmounted and removed from the node."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, volumes=VolumeFacts(released=True))


class DirectoriesGone(Result, frozen=True):
    """The pod's cgroup, log directory and data directory are removed."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, directories_gone=True, stop_failure=None)


class ImagePresent(Result, frozen=True):
    """Result: the container's image is in the image store of the pod's runtime. `status`: the image there."""

    name: str
    status: ImageStatus

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, self.name, image=self.status, image_failure=None)


class ImageFailed(Result, frozen=True):
    """The image could not be made available in the runtime's image store; retried with back-off.

    `retry_at`: monotonic time of the retry, if the image store sets it; None: use the worker's own back-off.
    """

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
    """A new sandbox was created; all containers start in it from the beginning, init containers included."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, sandbox_failure=None, changed_at=now.mono)


class SandboxFailed(Result, frozen=True):
    """Creating the sandbox failed or got no answer; retried with back-off.

    A later query of the runtime shows whether the sandbox exists.
    """

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.sandbox_failure, SANDBOX, self.reason, self.message, now)
        return replace(facts, sandbox_failure=failure, changed_at=now.mono)


class Unsettled(Result, frozen=True):
    """A call that changes the runtime timed out; it may still take effect until `until` (monotonic).

    Nothing is changed for the pod until the runtime was queried after that time (docs/architecture.md, rule 8).
    """

    until: float

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, unsettled_until=max(self.until, facts.unsettled_until or 0.0))


class UnitStarted(Result, frozen=True):
    """A container or machine was started as `unit_id`. `has_hook`: its postStart hook must run next."""

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
    """A container or machine could not be created or started; it is retried with back-off.

    `created` True: it was created, but its start failed.
    """

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
    """Container or machine `name` ended at `exited_at` (monotonic)."""

    name: str
    exited_at: float

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, self.name, exited_at=self.exited_at)


class HookNoted(Result, frozen=True):
    """The state of the container's postStart hook changed to `state`. `message`: the error if the hook FAILED."""

    name: str
    unit_id: UnitId
    state: HookState
    message: str = ""

    @property
    def reason(self) -> str:
        return "PostStartHookError" if self.state is HookState.FAILED else ""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = None
        if self.reason:
            failure = ActionFailure(reason=self.reason, message=self.message, retry_at=now.mono)
        return _unit(facts, self.name, hook=self.state, hook_unit=self.unit_id, failure=failure)


class Evacuated(Result, frozen=True):
    """Clients no longer use the pod, or their time is over: its containers are stopped next."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, is_evacuated=True)


class MessageRead(Result, frozen=True):
    """The termination message of an ended container was read; it may be empty.

    The container's previous termination message is kept as well, for its lastState.
    """

    name: str
    unit_id: UnitId
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        known = list(facts.unit(self.name).termination_messages.items())[-1:]
        return _unit(facts, self.name, termination_messages={**dict(known), self.unit_id: self.message})


class Killed(Result, frozen=True):
    """The agent stopped the container or machine. `reason`: why it is restarted; empty: no restart is intended."""

    name: str
    reason: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(replace(facts, changed_at=now.mono, stop_failure=None), self.name, killed=self.reason)


class Probed(Result, frozen=True):
    """A probe of the container has a new outcome. `probes`: the latest outcomes of all its probes."""

    name: str
    probes: ProbeFacts

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, self.name, probes=self.probes)


class RestartAsked(Result, frozen=True):
    """A user wants the container to be restarted, without the back-off of earlier restarts."""

    name: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, self.name, backoff=None)


class Resized(Result, frozen=True):
    """A resize of the container or machine succeeded or was newly requested; its last failure is dropped."""

    name: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return _unit(replace(facts, changed_at=now.mono), self.name, resize_failure=None)


class ResizeFailed(Result, frozen=True):
    """A resize of the container or machine failed.

    `may_heal` True: it is retried with back-off. False: it is retried only after a user edited the pod.
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
    """A resize of the pod-level resources succeeded: the pod now has the resources of its spec."""

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, changed_at=now.mono, resize_failure=None)


class PodResizeFailed(Result, frozen=True):
    """A resize of the pod-level resources failed; it is retried with back-off."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.resize_failure, SYNC, self.reason, self.message, now)
        return replace(facts, changed_at=now.mono, resize_failure=failure)


class OverridesFailed(Result, frozen=True):
    """The overrides file could not be read or written; that is tried again with back-off."""

    reason: str
    message: str

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        failure = next_try(facts.overrides_failure, SYNC, self.reason, self.message, now)
        return replace(facts, overrides_failure=failure)


class LookNeeded(Result, frozen=True):
    """The runtime no longer has a container or sandbox of the pod, or a call that changes it was cancelled.

    The pod's state is read from the runtime next.
    """

    def _apply(self, facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, changed_at=now.mono, look_wanted_at=now.mono)


class Changed(Result, frozen=True):
    """A call that changes the pod on its runtime succeeded.

    Only a query of the runtime that begins later shows the effect.
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
    """Reading the pod's state got no answer or lacked details; it is repeated after `LOOK_AGAIN_SECONDS`.

    `answered` True: the runtime answered, and only details are missing.
    """

    answered: bool = False

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
    """Return the record of a new failure that follows `previous`, with the time of the next try by `policy`."""
    return next_failure(previous, policy, reason=reason, message=message, now=now.mono, draw=now.draw)
