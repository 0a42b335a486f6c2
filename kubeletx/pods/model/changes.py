"""Effects of actions on the facts: small pure functions (facts, now) → facts, built by the steps.

A step returns one `Change`; the worker applies it when the action ends. Nothing here knows how an action was
carried out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from msgspec.structs import replace

from kubeletx.api import ImageStatus, NicStatus, RuntimeName, UnitId
from kubeletx.kube.types.core import Pod

from . import actions as act
from .actions import Action
from .backoff import IMAGE, NIC, SANDBOX, SYNC, VOLUME, RetryPolicy, next_backoff, next_failure
from .facts import (
    Failure,
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

Change = Callable[[PodFacts, Now], PodFacts]


def nothing(facts: PodFacts, now: Now) -> PodFacts:
    """No change beyond what the runtime's snapshot shows."""
    return facts


def together(*changes: Change) -> Change:
    """Apply one after the other."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        for change in changes:
            facts = change(facts, now)
        return facts

    return apply


def _unit(facts: PodFacts, name: str, **fields: object) -> PodFacts:
    return replace(facts, units={**facts.units, name: replace(facts.unit(name), **fields)})


def bound(runtime: RuntimeName, started_at: datetime) -> Change:
    """The binding is written."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return replace(
            facts,
            runtime=runtime,
            started_at=facts.started_at or started_at,
            admitted=True,
            waiting=None,
            bind_wanted=False,
            stop_failure=None,
        )

    return apply


def waits(reason: str, message: str) -> Change:
    """No runtime for now; tried again when a runtime changes, also if it did while the choice was made."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, waiting=Waiting(reason=reason, message=message))

    return apply


def rejected(reason: str, message: str) -> Change:
    """Refused for good."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return replace(
            facts,
            rejection=Rejection(reason=reason, message=message),
            waiting=None,
            bind_wanted=False,
            started_at=facts.started_at or now.wall,
        )

    return apply


def bind_failed(reason: str, message: str) -> Change:
    """The binding could not be written: wait and try again."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.stop_failure, SYNC, reason, message, now)
        return replace(
            facts, stop_failure=failure, waiting=Waiting(reason=reason, message=message), bind_wanted=True
        )

    return apply


def unbound(facts: PodFacts, now: Now) -> PodFacts:
    """The pod's last write is done."""
    return replace(facts, unbound=True)


def volumes_ready(began: float) -> Change:
    """All volumes are prepared, with the content of the time when that began."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        stale_at = facts.volumes.stale_at
        newer = stale_at if stale_at is not None and stale_at >= began else None
        return replace(facts, volumes=VolumeFacts(ready=True, stale_at=newer))

    return apply


def objects_changed(facts: PodFacts, now: Now) -> PodFacts:
    """Note a changed object of the pod: its files are written again, and actions that failed without it are retried."""
    volumes = facts.volumes
    if volumes.failure is not None and volumes.failure.retry_at is not None:
        volumes = replace(volumes, failure=replace(volumes.failure, retry_at=now.mono))
    facts = replace(facts, volumes=replace(volumes, stale_at=now.mono))
    for name, unit in facts.units.items():
        failure = unit.failure
        if failure is not None and failure.reason == CREATE_CONTAINER_CONFIG_ERROR:
            facts = _unit(facts, name, failure=replace(failure, retry_at=now.mono))
    return facts


def pod_edited(before: Pod, after: Pod) -> Change:
    """A user changed the pod: what failed is tried at once, and the back-off of an image goes with that image (B3)."""
    images = {one.name: one.image for one in all_units(before)}

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        for one in all_units(after):
            known = facts.unit(one.name)
            if known.image_failure is not None and images.get(one.name) != one.image:
                facts = _unit(facts, one.name, image_failure=None)
            if known.failure is not None:
                facts = _unit(facts, one.name, failure=replace(known.failure, retry_at=now.mono))
            if known.resize_failure is not None:
                facts = _unit(
                    facts, one.name, resize_failure=replace(known.resize_failure, retry_at=now.mono)
                )
            if known.nic_failures:
                facts = _unit(facts, one.name, nic_failures={})
        return facts

    return apply


def ran_before(restarts: Mapping[str, int]) -> Change:
    """Logs of earlier runs were found. `restarts`: container to the restart count of its next run."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        for name, count in restarts.items():
            facts = _unit(facts, name, restarts_before=count)
        return facts

    return apply


def volumes_failed(reason: str, message: str) -> Change:
    """Volumes could not be prepared or released."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.volumes.failure, VOLUME, reason, message, now)
        return replace(facts, volumes=replace(facts.volumes, failure=failure))

    return apply


def volumes_released(facts: PodFacts, now: Now) -> PodFacts:
    """Note that nothing of the pod's volumes is left on the node."""
    return replace(facts, volumes=VolumeFacts(released=True))


def directories_gone(facts: PodFacts, now: Now) -> PodFacts:
    """Cgroup, log and data directories are removed."""
    return replace(facts, directories_gone=True, stop_failure=None)


def image_present(name: str, status: ImageStatus) -> Change:
    """The container's image is in the bound store."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, name, image=status, image_failure=None)

    return apply


def image_failed(name: str, reason: str, message: str, retry_at: float | None = None) -> Change:
    """The image is not there. `retry_at`: the store's own back-off, if it keeps one."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.unit(name).image_failure, IMAGE, reason, message, now)
        if retry_at is not None:
            failure = replace(failure, retry_at=retry_at)
        return _unit(facts, name, image=None, image_failure=failure)

    return apply


def sandbox_made(facts: PodFacts, now: Now) -> PodFacts:
    """A new sandbox stands; units start afresh in it."""
    return replace(facts, sandbox_failure=None, changed_at=now.mono)


def sandbox_failed(reason: str, message: str) -> Change:
    """Note a failed or unanswered create of the sandbox: a look shows whether it exists."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.sandbox_failure, SANDBOX, reason, message, now)
        return replace(facts, sandbox_failure=failure, changed_at=now.mono)

    return apply


def unsettled(until: float) -> Change:
    """A changing call timed out: it may still happen until then (rule 8)."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return replace(facts, unsettled_until=max(until, facts.unsettled_until or 0.0))

    return apply


def unit_started(name: str, unit_id: UnitId, *, has_hook: bool) -> Change:
    """The unit runs; its postStart hook, if any, is due."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        facts = _count_restart(facts, name, now)
        return _unit(
            replace(facts, changed_at=now.mono),
            name,
            failure=None,
            image=None,
            hook=HookState.PENDING if has_hook else HookState.NONE,
            hook_unit=unit_id,
            probes=None,
            killed="",
        )

    return apply


def unit_failed(name: str, reason: str, message: str, *, created: bool) -> Change:
    """Note a failed create (`created` False) or start (True: the unit exists, ended)."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.unit(name).failure, SYNC, reason, message, now)
        if created:  # the unit that we stopped has its successor
            facts = _unit(_count_restart(facts, name, now), name, killed="")
        return _unit(replace(facts, changed_at=now.mono), name, failure=failure, image=None)

    return apply


def _count_restart(facts: PodFacts, name: str, now: Now) -> PodFacts:
    known = facts.unit(name)
    if known.exited_at is None:
        return facts
    backoff = next_backoff(known.backoff, known.exited_at, now=now.mono, cap=facts.crash_cap_seconds)
    return _unit(facts, name, backoff=backoff, exited_at=None)


def unit_exited(name: str, exited_at: float) -> Change:
    """The newest unit was seen ended."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, name, exited_at=exited_at)

    return apply


def hook_state(name: str, unit_id: UnitId, state: HookState, message: str = "") -> Change:
    """Set the state of the postStart hook."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = None
        if state is HookState.FAILED:
            failure = Failure(reason="PostStartHookError", message=message, retry_at=now.mono)
        return _unit(facts, name, hook=state, hook_unit=unit_id, failure=failure)

    return apply


def message_read(name: str, unit_id: UnitId, message: str) -> Change:
    """Store the termination message of an ended unit, for it and the one before it."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        known = list(facts.unit(name).termination_messages.items())[-1:]
        return _unit(facts, name, termination_messages={**dict(known), unit_id: message})

    return apply


def killed(name: str, reason: str) -> Change:
    """We stopped the unit, for this reason."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return _unit(replace(facts, changed_at=now.mono, stop_failure=None), name, killed=reason)

    return apply


def probed(name: str, probes: ProbeFacts) -> Change:
    """New probe results."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return _unit(facts, name, probes=probes)

    return apply


def power_set(name: str) -> Change:
    """The machine is where the call was to bring it."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return _unit(replace(facts, changed_at=now.mono), name, power_failure=None)

    return apply


def power_failed(name: str, reason: str, message: str) -> Change:
    """Note a failed or unanswered power change."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.unit(name).power_failure, SYNC, reason, message, now)
        return _unit(
            replace(facts, changed_at=now.mono, look_wanted_at=now.mono), name, power_failure=failure
        )

    return apply


def nics_seen(name: str, unit_id: UnitId, nics: tuple[NicStatus, ...]) -> Change:
    """The machine's interfaces were listed."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return _unit(
            facts, name, nics=nics, nics_unit=unit_id, nics_at=now.mono, nics_stale=False, nic_failure=None
        )

    return apply


def nics_changed(name: str, nic: str) -> Change:
    """One came or went: list them again."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        facts = replace(facts, changed_at=now.mono)
        return _unit(nic_retried(name, nic)(facts, now), name, nics_stale=True, nic_failure=None)

    return apply


def nics_unlisted(name: str, reason: str, message: str) -> Change:
    """Note a failed list of interfaces; retried with back-off."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.unit(name).nic_failure, SYNC, reason, message, now)
        return _unit(facts, name, nics_stale=True, nic_failure=failure)

    return apply


def nic_failed(name: str, nic: str, reason: str, message: str, *, may_heal: bool = True) -> Change:
    """One could not be plugged in or taken out; tried again with back-off if that `may_heal`. Others go on."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failures = facts.unit(name).nic_failures
        failure = _next(failures.get(nic), NIC, reason, message, now)
        if not may_heal:
            failure = replace(failure, retry_at=None)
        return _unit(facts, name, nics_stale=True, nic_failures={**failures, nic: failure})

    return apply


def nic_retried(name: str, nic: str) -> Change:
    """Retry the wanted change of one interface immediately."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failures = facts.unit(name).nic_failures
        kept = {known: failure for known, failure in failures.items() if known != nic}
        return _unit(facts, name, nic_failures=kept) if kept != failures else facts

    return apply


def resized(name: str) -> Change:
    """The size was asked for."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        return _unit(replace(facts, changed_at=now.mono), name, resize_failure=None)

    return apply


def resize_failed(name: str, reason: str, message: str, *, may_heal: bool = True) -> Change:
    """Note a failed resize; retried with back-off, or, unless it `may_heal`, when another size is wanted."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.unit(name).resize_failure, SYNC, reason, message, now)
        if not may_heal:
            failure = replace(failure, retry_at=None)
        return _unit(replace(facts, changed_at=now.mono), name, resize_failure=failure)

    return apply


def pod_resized(facts: PodFacts, now: Now) -> PodFacts:
    """The pod as a whole has what it wants."""
    return replace(facts, changed_at=now.mono, resize_failure=None)


def pod_resize_failed(reason: str, message: str) -> Change:
    """Note a failed resize of the pod; retried with back-off."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.resize_failure, SYNC, reason, message, now)
        return replace(facts, changed_at=now.mono, resize_failure=failure)

    return apply


def look_wanted(facts: PodFacts, now: Now) -> PodFacts:
    """A unit is gone altogether."""
    return replace(facts, changed_at=now.mono, look_wanted_at=now.mono)


def changed(facts: PodFacts, now: Now) -> PodFacts:
    """A changing call succeeded."""
    return replace(facts, changed_at=now.mono, stop_failure=None)


def stop_failed(reason: str, message: str) -> Change:
    """A stop or removal did not succeed; tried again with back-off."""

    def apply(facts: PodFacts, now: Now) -> PodFacts:
        failure = _next(facts.stop_failure, SYNC, reason, message, now)
        return replace(facts, stop_failure=failure, changed_at=now.mono)

    return apply


def failed(action: Action, reason: str, message: str) -> Change:
    """The action failed in a way that its step did not foresee: whatever it was, it is tried again later."""
    match action:
        case act.PrepareVolumes() | act.ReleaseVolumes():
            return volumes_failed(reason, message)
        case act.EnsureImage(name=name):
            return image_failed(name, reason, message)
        case act.CreateSandbox():
            return sandbox_failed(reason, message)
        case act.StartUnit(name=name):
            return unit_failed(name, reason, message, created=False)
        case act.RunPostStart(name=name, unit_id=unit_id):
            return hook_state(name, unit_id, HookState.FAILED, message)
        case act.ReadMessage(name=name, unit_id=unit_id):
            return message_read(name, unit_id, "")
        case act.Bind():
            return bind_failed(reason, message)
        case act.SetPower(name=name):
            return power_failed(name, reason, message)
        case act.ResizeUnit(name=name) | act.ResizeContainer(name=name):
            return resize_failed(name, reason, message)
        case act.ResizePod():
            return pod_resize_failed(reason, message)
        case act.ListNics(name=name):
            return nics_unlisted(name, reason, message)
        case act.AttachNic(name=name, nic=nic):
            return nic_failed(name, nic.name or "", reason, message)
        case act.DetachNic(name=name, nic_name=nic_name):
            return nic_failed(name, nic_name, reason, message)
        case act.Look():
            return look_failed
    return stop_failed(reason, message)


def look_failed(facts: PodFacts, now: Now) -> PodFacts:
    """No answer: the look is wanted again in a while."""
    return replace(facts, look_wanted_at=now.mono + LOOK_AGAIN_SECONDS)


def _next(previous: Failure | None, policy: RetryPolicy, reason: str, message: str, now: Now) -> Failure:
    return next_failure(previous, policy, reason=reason, message=message, now=now.mono, draw=now.draw)
