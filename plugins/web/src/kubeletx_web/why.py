"""Explains a pod's state in one sentence, with the commands that help. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec

from kubeletx.api import names
from kubeletx.kube.types.core import (
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
)
from kubeletx.kube.types.event import Event

from .values import field
from .words import condition, frozen_memory, runtime_of

IMAGE_REASONS: Final = (
    "ErrImagePull",
    "ImagePullBackOff",
    "RegistryUnavailable",
    "SignatureValidationFailed",
    "ImageInspectError",
    "InvalidImageName",
    "ErrImageNeverPull",
)
RETRIED: Final = IMAGE_REASONS[:4]
FIRST_SECONDS: Final = 10
MOST_SECONDS: Final = 300
"""The pull of an image is tried again after 10 s, then after twice the time, up to five minutes (docs/kubelet-parity.md)."""
STARTING: Final = ("", "ContainerCreating", "PodInitializing")
_DELAY: Final = re.compile(r"back-off (?:(\d{1,2})m)?(\d{1,2})s restarting")
_POWER_COMMANDS: Final = {"paused": "resume", "suspended": "resume", "shutdown": "start", "crashed": "start"}


class Why(msgspec.Struct, frozen=True):
    """The reason for a pod's state. `since`: begin of the state. `again_at`: the next try. None: unknown.

    `commands`: commands that help, for a shell on the node.
    """

    text: str
    since: datetime | str | None = None
    again_at: datetime | None = None
    commands: Sequence[str] = ()


def why(pod: Pod, events: Iterable[Event] = (), volumes: Iterable[Mapping[str, Any]] = ()) -> Why:
    """Return why the pod is in its state. `events`: about the pod, oldest first. `volumes`: of the pod."""
    found = next(_reasons(pod, tuple(events), tuple(volumes)))
    invalid = condition(pod, names.MANIFEST_VALID)
    if invalid is not None and invalid.status == "False":
        more = f"Its new manifest is not valid, and the pod runs on unchanged: {_end(invalid.message)}"
        return msgspec.structs.replace(found, text=f"{found.text} {more}")
    return found


def statuses(pod: Pod) -> Sequence[ContainerStatus]:
    """Return the statuses of init containers and containers, in the order in which they start."""
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def _reasons(pod: Pod, events: Sequence[Event], volumes: Sequence[Mapping[str, Any]]) -> Iterator[Why]:
    """Yield reasons, the most important first."""
    meta, status = pod.metadata, pod.status
    is_over = status.phase in ("Succeeded", "Failed")
    if meta.deletion_timestamp is not None and not is_over:
        grace = meta.deletion_grace_period_seconds
        rest = f"; its containers get {grace} s to end" if grace else ""
        yield Why(f"Is being deleted{rest}.", meta.deletion_timestamp)
    away = condition(pod, names.RUNTIME_REACHABLE)
    if away is not None and away.status == "False" and not is_over:
        runtime = runtime_of(pod)
        yield Why(
            f"Runtime {runtime} does not answer; this is the last known state: {_end(away.message)}",
            away.last_transition_time,
            commands=(f"kubeletx describe runtime {runtime}",) if runtime else (),
        )
    if meta.annotations.get(names.ORPHANED) == "true":
        yield Why(
            f"Is on runtime {runtime_of(pod)}, but no manifest, API server or other source has it any more."
        )
    if is_over:
        yield _ended(pod)
    yield from _waiting(pod, events, volumes)
    yield from _resting(pod)
    if status.phase == "Running":
        yield _running(pod, events)
    yield Why(f"Is not started yet: {_end(status.message or status.reason)}", meta.creation_timestamp)


def _ended(pod: Pod) -> Why:
    if pod.status.reason or pod.status.message:
        return Why(f"Ended: {_end(': '.join(filter(None, (pod.status.reason, pod.status.message))))}")
    ends = [(each, each.state.terminated) for each in statuses(pod) if each.state.terminated is not None]
    last = max((end.finished_at for _, end in ends if end and end.finished_at), default=None)
    failed = [(each, end) for each, end in ends if end is not None and end.exit_code != 0]
    if not failed:
        return Why("Did its work: all containers ended with exit code 0.", last)
    texts = [f"container {each.name} ended with {exit_text(end)}" for each, end in failed]
    return Why(f"Failed: {'; '.join(texts)}.", last, commands=(_logs(pod, failed[0][0].name),))


def _waiting(pod: Pod, events: Sequence[Event], volumes: Sequence[Mapping[str, Any]]) -> Iterator[Why]:
    waits = [(each, each.state.waiting) for each in statuses(pod) if each.state.waiting is not None]
    for each, state in waits:
        if state is None or (state.reason or "") in STARTING:
            continue
        if state.reason in IMAGE_REASONS:
            yield _image(each, state, events)
        elif state.reason == "CrashLoopBackOff":
            yield _crash_loop(pod, each, state)
        else:
            text = ": ".join(filter(None, (state.reason, state.message)))
            yield Why(f"Container {each.name} waits: {_end(text)}")
    for volume in volumes:
        message = field(volume, "message", "")
        if volume.get("state") != "ready" and message and pod.status.phase == "Pending":
            yield Why(f"Waits for volume {volume.get('name')}: {_end(message)}", field(volume, "since", ""))
    for each, state in waits:
        if state is not None and state.message:
            yield Why(f"Container {each.name} is not started yet: {_end(state.message)}")
    for each in pod.status.init_container_statuses:
        if each.state.running is not None and waits and not each.started:
            yield Why(f"Waits until init container {each.name} ends.", each.state.running.started_at)
    if waits and pod.status.phase == "Pending":
        yield Why(
            f"Starts: {_list([each.name for each, _ in waits])} not started yet.",
            pod.status.start_time or pod.metadata.creation_timestamp,
        )


def _image(status: ContainerStatus, state: ContainerStateWaiting, events: Sequence[Event]) -> Why:
    failures = [
        event
        for event in events
        if event.reason == names.Event.FAILED
        and status.image in (event.message or "")
        and "Failed to pull" in (event.message or "")
    ]
    count = sum(event.count or 1 for event in failures)
    times = f"the pull failed {_times(count)}" if count else "the pull failed"
    last = failures[-1].last_timestamp if failures else None
    again_at = None
    if last is not None and state.reason in RETRIED:
        again_at = last + timedelta(seconds=min(MOST_SECONDS, FIRST_SECONDS * 2 ** min(count - 1, 10)))
    # The message of a back-off begins with the image's name, which this sentence has.
    message = (state.message or "").removeprefix(f'Back-off pulling image "{status.image}": ')
    return Why(
        f"Container {status.name} waits for its image {status.image}: {times}: {_end(message or state.reason)}",
        again_at=again_at,
    )


def _crash_loop(pod: Pod, status: ContainerStatus, state: ContainerStateWaiting) -> Why:
    ended = status.last_state.terminated
    delay = _DELAY.search(state.message or "")
    again_at = None
    if ended is not None and ended.finished_at is not None and delay is not None:
        again_at = ended.finished_at + timedelta(minutes=int(delay[1] or 0), seconds=int(delay[2]))
    last = f", the last time with {exit_text(ended)}" if ended is not None else ""
    return Why(
        f"Container {status.name} ends again and again: restarted {_times(status.restart_count)}{last}.",
        again_at=again_at,
        commands=(_logs(pod, status.name, previous=True),),
    )


def _resting(pod: Pod) -> Iterator[Why]:
    standby = condition(pod, names.STANDBY_CONDITION)
    if standby is not None and standby.status == "True":
        word = "Hibernated: its memory is on disk" if standby.reason == "Hibernated" else "Frozen"
        memory = frozen_memory(pod)
        freed = f", {memory} MiB of memory" if memory else ""
        serves = pod.metadata.annotations.get(names.SESSIONS) == "true"
        wakes = "wakes when a session opens on it, or by the command" if serves else "wakes by the command"
        yield Why(
            f"{word}{freed}; {wakes}.",
            standby.last_transition_time,
            commands=(f"kubeletx pod activate {_name(pod)}",),
        )
    machine = pod.status.virtual_machine_status
    power = machine.power_state or "" if machine is not None else ""
    if power in _POWER_COMMANDS:
        off = condition(pod, names.UNITS_RUNNING)
        yield Why(
            f"The machine is {'off' if power == 'shutdown' else power}.",
            off.last_transition_time if off is not None else None,
            commands=(f"kubeletx vm {_POWER_COMMANDS[power]} {_name(pod)}",),
        )


def _running(pod: Pod, events: Sequence[Event]) -> Why:
    ready = condition(pod, names.POD_READY)
    since = ready.last_transition_time if ready is not None else None
    restarted = [each for each in statuses(pod) if each.restart_count and each.last_state.terminated]
    texts, commands = [], []
    for each in restarted:
        ended = each.last_state.terminated
        last = f", last {exit_text(ended)}" if ended is not None else ""
        texts.append(f"container {each.name} was restarted {_times(each.restart_count)}{last}")
        commands.append(_logs(pod, each.name, previous=True))
    history = f"; {'; '.join(texts)}" if texts else ""
    if ready is not None and ready.status == "True":
        return Why(f"Runs and is ready{history}.", since, commands=commands)
    ends = [
        f"container {each.name} ended with {exit_text(each.state.terminated)}"
        for each in pod.status.container_statuses
        if each.state.terminated is not None
    ]
    if ends:
        return Why(f"Runs{history}, but {'; '.join(ends)}.", since, commands=commands)
    unready = [each.name for each in pod.status.container_statuses if not each.ready]
    unhealthy = [
        event
        for event in events
        if event.reason == names.Event.UNHEALTHY
        and (since is None or event.last_timestamp is None or event.last_timestamp >= since)
    ]
    if unhealthy:
        cause = f": {_end(unhealthy[-1].message)}"
    else:
        cause = f": {_end(ready.message)}" if ready is not None and ready.message else "."
    standby = condition(pod, names.STANDBY_CONDITION)
    if standby is not None and standby.message and standby.reason not in ("NotFrozen", None):
        cause += f" {_end(standby.message)}"
    what = f"container {_list(unready)} not ready" if unready else "the pod is not ready"
    return Why(f"Runs{history}, but {what}{cause}", since, commands=commands)


def exit_text(ended: ContainerStateTerminated) -> str:
    """Return how a container ended, such as ``exit code 137 (OOMKilled)``."""
    what = f"signal {ended.signal}" if ended.signal else f"exit code {ended.exit_code}"
    return f"{what} ({ended.reason})" if ended.reason else what


def _logs(pod: Pod, container: str, *, previous: bool = False) -> str:
    return f"kubeletx logs {'-p ' if previous else ''}{_name(pod)} -c {container}"


def _name(pod: Pod) -> str:
    return pod.name if pod.namespace in ("", "default") else f"{pod.name} -n {pod.namespace}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _list(words: Sequence[str]) -> str:
    return f"{words[0]} is" if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]} are"


def _end(text: str | None) -> str:
    """Return the text as the end of a sentence."""
    return f"{(text or 'no reason is given').strip().rstrip('.')}."
