"""Explains a pod's state in one sentence, with the commands that help. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from kubeletx.api import names
from kubeletx.kube.types.core import Pod, PodCondition
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.status import ContainerStateTerminated, ContainerStateWaiting, ContainerStatus

from .values import field
from .words import condition, frozen_memory, listing, runtime_of

_STARTING: Final = (None, "", "ContainerCreating", "PodInitializing")
_IMAGE: Final = re.compile("Image|RegistryUnavailable|SignatureValidationFailed")
_DELAY: Final = re.compile(r"back-off (?:(\d{1,2})m)?(\d{1,2})s restarting")
_NONE: Final = PodCondition(type="", status="")
_POWER_COMMANDS: Final = {"paused": "resume", "suspended": "resume", "shutdown": "start", "crashed": "start"}


class Why(NamedTuple):
    """The reason for a pod's state. `since`: begin of the state. `again_at`: the next try. `commands`: that help, on the node."""

    text: str
    since: datetime | str | None = None
    again_at: datetime | None = None
    commands: Sequence[str] = ()


def why(pod: Pod, events: Iterable[Event] = (), volumes: Iterable[Mapping[str, Any]] = ()) -> Why:
    """Return why the pod is in its state. `events`: about the pod, oldest first. `volumes`: of the pod."""
    try:
        found = next(_reasons(pod, tuple(events), tuple(volumes)))
    except OverflowError:  # a time in the year 9999
        return Why("Its times are not valid.")
    if invalid := condition(pod, names.MANIFEST_VALID, "False"):
        more = f"Its new manifest is not valid, and the pod runs on unchanged: {_end(invalid.message)}"
        return found._replace(text=f"{found.text} {more}")
    return found


def _statuses(pod: Pod) -> Sequence[ContainerStatus]:
    return (*pod.status.init_container_statuses, *pod.status.container_statuses)


def _reasons(pod: Pod, events: Sequence[Event], volumes: Sequence[Mapping[str, Any]]) -> Iterator[Why]:
    """Yield reasons, the most important first."""
    meta, status, runtime = pod.metadata, pod.status, runtime_of(pod)
    if status.phase not in ("Succeeded", "Failed"):
        if meta.deletion_timestamp is not None:
            grace = meta.deletion_grace_period_seconds
            rest = f"; its containers get {grace} s to end" if grace else ""
            yield Why(f"Is being deleted{rest}.", meta.deletion_timestamp)
        if away := condition(pod, names.RUNTIME_REACHABLE, "False"):
            text = f"Runtime {runtime} does not answer; this is the last known state: {_end(away.message)}"
            command = f"kubeletx describe runtime {runtime}"
            yield Why(text, away.last_transition_time, commands=(command,) if runtime else ())
    if meta.annotations.get(names.ORPHANED) == "true":
        yield Why(f"Is on runtime {runtime}, but no manifest, API server or other source has it any more.")
    if status.phase in ("Succeeded", "Failed"):
        yield _ended(pod)
    yield from _waiting(pod, events, volumes)
    yield from _resting(pod)
    if status.phase == "Running":
        yield _running(pod, events)
    yield Why(f"Is not started yet: {_end(status.message or status.reason)}", meta.creation_timestamp)


def _ended(pod: Pod) -> Why:
    if pod.status.reason or pod.status.message:
        return Why(f"Ended: {_end(pod.status.reason, pod.status.message)}")
    ends = [(each.name, end) for each in _statuses(pod) if (end := each.state.terminated) is not None]
    last = max((end.finished_at for _, end in ends if end.finished_at), default=None)
    failed = [(name, end) for name, end in ends if end.exit_code != 0]
    if not failed:
        return Why("Did its work: all containers ended with exit code 0.", last)
    text = "; ".join(f"container {name} ended with {exit_text(end)}" for name, end in failed)
    return Why(f"Failed: {text}.", last, commands=(_logs(pod, failed[0][0]),))


def _waiting(pod: Pod, events: Sequence[Event], volumes: Sequence[Mapping[str, Any]]) -> Iterator[Why]:
    waits = [(each, state) for each in _statuses(pod) if (state := each.state.waiting) is not None]
    for each, state in waits:
        if _IMAGE.search(state.reason or ""):
            yield _image(each, state, events)
        elif state.reason == "CrashLoopBackOff":
            yield _crash_loop(pod, each, state)
        elif state.reason not in _STARTING:
            yield Why(f"Container {each.name} waits: {_end(state.reason, state.message)}")
    is_pending = pod.status.phase == "Pending"
    for volume in volumes:
        message = field(volume, "message", "")
        if volume.get("state") != "ready" and message and is_pending:
            yield Why(f"Waits for volume {volume.get('name')}: {_end(message)}", field(volume, "since", ""))
    for each, state in waits:
        if state.message:
            yield Why(f"Container {each.name} is not started yet: {_end(state.message)}")
    for each in pod.status.init_container_statuses:
        if each.state.running is not None and waits and not each.started:
            yield Why(f"Waits until init container {each.name} ends.", each.state.running.started_at)
    if waits and is_pending:
        text = f"Starts: {listing([each.name for each, _ in waits])} not started yet."
        yield Why(text, pod.status.start_time or pod.metadata.creation_timestamp)


def _image(status: ContainerStatus, state: ContainerStateWaiting, events: Sequence[Event]) -> Why:
    failure = f'Failed to pull image "{status.image}"'
    failures = [each for each in events if each.reason == names.Event.FAILED and failure in str(each.message)]
    count = sum(event.count or 1 for event in failures)
    last = failures[-1].last_timestamp if failures else None
    # The pull is tried again after 10 s, then after twice the time, up to five minutes (docs/kubelet-parity.md).
    delay = timedelta(seconds=min(300, 5 * 2 ** min(count, 10)))
    # The message of a back-off begins with the image's name, which this sentence has.
    message = (state.message or "").removeprefix(f'Back-off pulling image "{status.image}": ')
    failed = f"the pull failed {_times(count)}" if count else "the pull failed"
    text = f"{status.image}: {failed}: {_end(message or state.reason)}"
    return Why(f"Container {status.name} waits for its image {text}", again_at=last and last + delay)


def _crash_loop(pod: Pod, status: ContainerStatus, state: ContainerStateWaiting) -> Why:
    ended = status.last_state.terminated
    delay = _DELAY.search(state.message or "")
    again_at = None
    if ended is not None and ended.finished_at is not None and delay is not None:
        again_at = ended.finished_at + timedelta(minutes=int(delay[1] or 0), seconds=int(delay[2]))
    last = f", the last time with {exit_text(ended)}" if ended is not None else ""
    text = f"Container {status.name} ends again and again: restarted {_times(status.restart_count)}{last}."
    return Why(text, again_at=again_at, commands=(_logs(pod, status.name, previous=True),))


def _resting(pod: Pod) -> Iterator[Why]:
    if standby := condition(pod, names.STANDBY_CONDITION, "True"):
        word = "Hibernated: its memory is on disk" if standby.reason == "Hibernated" else "Frozen"
        memory = frozen_memory(pod)
        freed = f", {memory} MiB of memory" if memory else ""
        serves = pod.metadata.annotations.get(names.SESSIONS) == "true"
        wakes = "wakes when a session opens on it, or by the command" if serves else "wakes by the command"
        command = f"kubeletx pod activate {_name(pod)}"
        yield Why(f"{word}{freed}; {wakes}.", standby.last_transition_time, commands=(command,))
    machine = pod.status.virtual_machine_status
    if machine is not None and (verb := _POWER_COMMANDS.get(machine.power_state or "")):
        text = f"The machine is {'off' if machine.power_state == 'shutdown' else machine.power_state}."
        off = condition(pod, names.UNITS_RUNNING) or _NONE
        yield Why(text, off.last_transition_time, commands=(f"kubeletx vm {verb} {_name(pod)}",))


def _running(pod: Pod, events: Sequence[Event]) -> Why:
    ready = condition(pod, names.POD_READY) or _NONE
    since, history, commands = ready.last_transition_time, "", []
    for each in _statuses(pod):
        if each.restart_count and (ended := each.last_state.terminated) is not None:
            times = _times(each.restart_count)
            history += f"; container {each.name} was restarted {times}, last {exit_text(ended)}"
            commands.append(_logs(pod, each.name, previous=True))
    if ready.status == "True":
        return Why(f"Runs and is ready{history}.", since, commands=commands)
    containers = pod.status.container_statuses
    ends = [(each.name, end) for each in containers if (end := each.state.terminated) is not None]
    if ends:
        text = "; ".join(f"container {name} ended with {exit_text(end)}" for name, end in ends)
        return Why(f"Runs{history}, but {text}.", since, commands=commands)
    unready = [each.name for each in containers if not each.ready]
    cause = ready.message
    for event in events:
        if event.reason == names.Event.UNHEALTHY and (not since or (event.last_timestamp or since) >= since):
            cause = event.message
    text = f"container {listing(unready)} not ready" if unready else "the pod is not ready"
    text = f"Runs{history}, but {text}{f': {_end(cause)}' if cause else '.'}"
    standby = condition(pod, names.STANDBY_CONDITION) or _NONE
    if standby.message and standby.reason not in ("NotFrozen", None):
        text += f" {_end(standby.message)}"
    return Why(text, since, commands=commands)


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


def _end(*parts: str | None) -> str:
    """Return the parts as the end of a sentence."""
    text = ": ".join(part for part in parts if part) or "no reason is given"
    return f"{text.strip().rstrip('.')}."
