"""Builds the status of each container from the pod's facts (docs/kubelet-parity.md, rows ST4 to ST6 and ST8).

    newest unit            state in the status
    none, never ran        waiting: ContainerCreating or PodInitializing
    none, but it ran       terminated: ContainerStatusUnknown, exit code 137 (the runtime no longer has it)
    created                waiting
    alive                  running; waiting until its postStart hook is done (T1)
    exited                 terminated
    unknown                terminated: ContainerStatusUnknown if it ran, else waiting

If the next run of a container is delayed for a known reason (image, configuration, hook, CrashLoopBackOff), the
container is waiting with this reason, and the end of its last run is in lastState. Data that the runtime no longer has
comes from the previous status. A restart count never decreases.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from kubeletx.api import UnitState, UnitStatus, UnitSummary, is_same_image, names
from kubeletx.api.names import RUNTIME_UNSUPPORTED
from kubeletx.kube.manifests.hashes import container_hash
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    VolumeMountStatus,
)

from ..model.facts import HookState
from ..model.frame import Frame, at_ns, bare_id, is_of_unit, previous_of
from ..model.restart_policy import LOST_EXIT_CODE
from ..model.roles import ephemeral_units, init_units, is_sidecar, regular_units
from ..model.runs import is_of_boot
from ..plan.resize_container import in_effect, with_granted
from ..plan.restart_all import end_by_restart, generation_of, is_outdated
from .end import STATUS_UNKNOWN
from .waiting import default_waiting, failure_waiting, may_restart, runs_again, waiting_reason

_ID_BEGINS = "sha256:"
LOST_MESSAGE = "The container ran, but its runtime no longer has it"


def init_statuses(frame: Frame) -> tuple[ContainerStatus, ...]:
    """Build one status per init container, sidecars included, in spec order."""
    return tuple(_status(frame, c, is_init=not is_sidecar(c)) for c in init_units(frame.desired.pod))


def regular_statuses(frame: Frame) -> tuple[ContainerStatus, ...]:
    """Build one status per regular container in spec order; for a machine pod one status for the machine."""
    return tuple(_status(frame, c) for c in regular_units(frame.desired.pod))


def ephemeral_statuses(frame: Frame) -> tuple[ContainerStatus, ...]:
    """Build one status per ephemeral container in spec order.

    All are waiting if the pod's workload does not support ephemeral containers.
    """
    refusal = frame.facts.own.no_ephemeral
    show = partial(_unsupported, refusal) if refusal else partial(_status, frame, is_ephemeral=True)
    return tuple(map(show, ephemeral_units(frame.desired.pod)))


def _unsupported(refusal: str, container: Container) -> ContainerStatus:
    waiting = ContainerStateWaiting(reason=RUNTIME_UNSUPPORTED, message=refusal)
    state = ContainerState(waiting=waiting)
    return ContainerStatus(
        name=container.name, ready=False, restart_count=0, image=container.image, image_id="", state=state
    )


def _container_id(frame: Frame, unit: UnitSummary, previous: ContainerStatus | None) -> str:
    if frame.backend is None and previous is not None and previous.container_id is not None:
        word = previous.container_id.partition("://")[0]
    else:
        word = frame.backend or str(frame.facts.runtime)
    return f"{word}://{unit.id}"


def _status(
    frame: Frame, container: Container, *, is_init: bool = False, is_ephemeral: bool = False
) -> ContainerStatus:
    facts = frame.facts
    unit = facts.newest(container.name)
    previous = previous_of(facts.previous_status, container.name)
    if unit is None:
        return _status_without_unit(frame, container, previous, may_run=not is_ephemeral)
    state = _state(frame, container, unit, previous)
    last_state = _last_state(frame, unit, previous)
    waiting = None
    is_due = unit.state is UnitState.CREATED if is_ephemeral else not unit.state.is_alive
    if is_due and runs_again(frame, container, unit, is_init):
        waiting = waiting_reason(frame, container)
    if waiting is not None:
        last_state = ContainerState(terminated=state.terminated) if state.terminated else last_state
        if is_outdated(frame.desired, facts, unit):
            last_state = ContainerState(terminated=end_by_restart())
        state = ContainerState(waiting=waiting)
    given = container.resources if is_ephemeral else with_granted(container, facts).resources
    started = None if is_ephemeral else _is_started(frame, container, unit, state, previous)
    if is_init:
        ready = state.terminated is not None and state.terminated.exit_code == 0
    else:
        ready = bool(started) and _is_ready(frame, container, unit, previous)
    return ContainerStatus(
        name=container.name,
        ready=ready,
        started=started,
        restart_count=_restart_count(frame, unit, previous),
        image=_image(frame, container, unit, previous),
        image_id=_image_id(frame, unit, previous),
        container_id=_container_id(frame, unit, previous),
        state=state,
        last_state=last_state,
        allocated_resources=given.requests,
        resources=given if is_ephemeral else in_effect(container, facts),
        volume_mounts=_volume_mounts(container),
    )


# --- without a unit on the runtime ---------------------------------------------------------------------


def _status_without_unit(
    frame: Frame, container: Container, previous: ContainerStatus | None, *, may_run: bool
) -> ContainerStatus:
    """Build the status of a container that does not exist on the runtime.

    It never ran, its end is in the previous status, or the runtime lost it while it ran. `may_run`: the container may
    run again after its end.
    """
    if previous is not None and _keeps_last_word(frame, container, previous):
        return _with_probes(frame, container, previous)
    last_state = previous.last_state if previous is not None else ContainerState()
    restarts = previous.restart_count if previous is not None else 0
    ended = None
    if previous is not None and previous.state.running is not None:
        ended = _lost(previous)
    elif previous is not None:
        ended = previous.state.terminated
    if ended is not None:
        if not (may_run and frame.will_run and may_restart(frame, container, ended.exit_code)):
            assert previous is not None
            return replace(previous, state=ContainerState(terminated=ended), ready=False, started=False)
        last_state, restarts = ContainerState(terminated=ended), restarts + 1
    waiting = waiting_reason(frame, container) if frame.will_run else None
    if waiting is None:
        waiting = default_waiting(frame)
    return ContainerStatus(
        name=container.name,
        ready=False,
        started=False if may_run else None,
        restart_count=restarts,
        image=container.image,
        image_id="",
        state=ContainerState(waiting=waiting),
        last_state=last_state,
        volume_mounts=_volume_mounts(container),
    )


def _keeps_last_word(frame: Frame, container: Container, previous: ContainerStatus) -> bool:
    """Return True if the container's previous status still applies.

    This is so before the runtime has reported the pod's state for the first time, and if the container has ended and
    will not run again.
    """
    if frame.facts.snapshot is None:
        return previous.container_id is not None
    ended = previous.state.terminated
    return ended is not None and not (frame.will_run and may_restart(frame, container, ended.exit_code))


def _with_probes(frame: Frame, container: Container, previous: ContainerStatus) -> ContainerStatus:
    """Return the previous status with the current readiness.

    Network probes continue while the runtime does not answer, so readiness can change.
    """
    probes = frame.facts.unit(container.name).probes
    if probes is None or probes.readiness is None or not is_of_unit(previous, probes.unit_id):
        return previous
    if previous.state.running is None or not previous.started:
        return previous
    return replace(previous, ready=probes.readiness)


def _lost(previous: ContainerStatus) -> ContainerStateTerminated:
    running = previous.state.running
    return ContainerStateTerminated(
        exit_code=LOST_EXIT_CODE,
        reason=STATUS_UNKNOWN,
        message=LOST_MESSAGE,
        started_at=running.started_at if running is not None else None,
        container_id=previous.container_id,
    )


# --- states --------------------------------------------------------------------------------------------


def _state(
    frame: Frame, container: Container, unit: UnitSummary, previous: ContainerStatus | None
) -> ContainerState:
    status = frame.facts.snapshot.status_of(unit.id) if frame.facts.snapshot is not None else None
    same = previous if is_of_unit(previous, unit.id) else None
    known = frame.facts.unit(container.name)
    if unit.state.is_alive:
        if known.hook_unit == unit.id and known.hook in (HookState.PENDING, HookState.RUNNING):
            return ContainerState(waiting=default_waiting(frame))
        if known.hook_unit == unit.id and known.hook is HookState.FAILED and known.failure is not None:
            return ContainerState(waiting=failure_waiting(known.failure))
        return ContainerState(running=_running(status, same))
    if unit.state is UnitState.EXITED:
        terminated = _terminated(frame, unit, status, same)
        return ContainerState(terminated=terminated) if terminated else _unseen_end(frame, unit, same)
    if unit.state is UnitState.UNKNOWN and same is not None and same.state.running is not None:
        return ContainerState(terminated=_lost(same))
    if unit.state is UnitState.UNKNOWN and same is not None and same.state.terminated is not None:
        return same.state
    return ContainerState(waiting=default_waiting(frame))


def _running(status: UnitStatus | None, same: ContainerStatus | None) -> ContainerStateRunning:
    if status is not None and status.started_at_ns > 0:
        return ContainerStateRunning(started_at=at_ns(status.started_at_ns))
    if same is not None and same.state.running is not None:
        return same.state.running
    return ContainerStateRunning()  # the start time is known after the query that is in flight


def _terminated(
    frame: Frame, unit: UnitSummary, status: UnitStatus | None, same: ContainerStatus | None
) -> ContainerStateTerminated | None:
    """Build the terminated state of an ended container or machine.

    While its exit code is not known, return the state from `same`, an earlier status of the same unit, or None.
    """
    if status is None or status.exit_code is None:
        return same.state.terminated if same is not None else None
    reason = status.reason or ("Completed" if status.exit_code == 0 else "Error")
    text = _joined(frame.facts.unit(unit.name).termination_messages.get(unit.id, ""), status.message)
    return ContainerStateTerminated(
        exit_code=status.exit_code,
        reason=reason,
        message=_cut(text, frame.message_bytes) or None,
        started_at=at_ns(status.started_at_ns),
        finished_at=at_ns(status.finished_at_ns),
        container_id=_container_id(frame, unit, same),
    )


def _unseen_end(frame: Frame, unit: UnitSummary, same: ContainerStatus | None) -> ContainerState:
    """Return the state to show for an ended unit whose exit code is not known yet.

    It is the state in `same`, an earlier status of the same unit. Without one it is waiting or, if the pod is to end,
    running.
    """
    if same is not None:
        return same.state
    if frame.will_run:
        return ContainerState(waiting=default_waiting(frame))
    return ContainerState(running=ContainerStateRunning(started_at=at_ns(unit.created_at_ns)))


def _last_state(frame: Frame, unit: UnitSummary, previous: ContainerStatus | None) -> ContainerState:
    """Build field lastState: the end of the container's run before its newest unit; empty if there was none."""
    snapshot = frame.facts.snapshot
    if is_of_unit(previous, unit.id) and previous is not None and previous.state.waiting is None:
        before = previous.last_state
    elif previous is not None and previous.state.terminated is not None:
        before = ContainerState(terminated=previous.state.terminated)
    else:
        before = previous.last_state if previous is not None else ContainerState()
    if snapshot is None:
        return before
    older = snapshot.units_named(unit.name)[1:]
    if older and generation_of(older[0]) < generation_of(unit):
        return ContainerState(terminated=end_by_restart())
    if older and older[0].state is UnitState.EXITED:
        status = snapshot.status_of(older[0].id)
        terminated = _terminated(frame, older[0], status, None)
        if terminated is not None:
            return ContainerState(terminated=terminated)
    if before.terminated is not None and bare_id(before.terminated.container_id) == unit.id:
        return ContainerState()
    return before


# --- the other fields ----------------------------------------------------------------------------------


def _is_started(
    frame: Frame,
    container: Container,
    unit: UnitSummary,
    state: ContainerState,
    previous: ContainerStatus | None,
) -> bool:
    """Return True if the unit runs, its postStart hook is done and its startup probe passed.

    After a restart of the agent the previous value is kept until the startup probe has an outcome
    (docs/kubelet-parity.md, row P2).
    """
    if state.running is None:
        return False
    if frame.facts.is_started(container, unit):
        return True
    probes = frame.facts.unit(container.name).probes
    answered = probes is not None and probes.unit_id == unit.id and probes.startup is not None
    return not answered and is_of_boot(previous, frame.facts, unit) and bool(previous and previous.started)


def _is_ready(
    frame: Frame, container: Container, unit: UnitSummary, previous: ContainerStatus | None
) -> bool:
    if unit.state is not UnitState.RUNNING:
        return False
    if container.readiness_probe is None:
        return True
    probes = frame.facts.unit(container.name).probes
    if probes is not None and probes.unit_id == unit.id and probes.readiness is not None:
        return probes.readiness
    return (
        frame.facts.recovered
        and is_of_boot(previous, frame.facts, unit)
        and bool(previous and previous.ready)
    )


def _restart_count(frame: Frame, unit: UnitSummary, previous: ContainerStatus | None) -> int:
    status = frame.facts.snapshot.status_of(unit.id) if frame.facts.snapshot is not None else None
    inside = status.restarts if status is not None else 0
    return max(unit.attempt + inside, previous.restart_count if previous is not None else 0)


def _image(frame: Frame, container: Container, unit: UnitSummary, previous: ContainerStatus | None) -> str:
    """Return the name of the container's image.

    Older containerd versions list only the image's ID; then the name in the previous status is used. If an image has
    several names, containerd reports any of them; a unit created from the present spec keeps the name in the spec.
    """
    status = frame.facts.snapshot.status_of(unit.id) if frame.facts.snapshot is not None else None
    reported = (status.summary.image if status is not None else "") or unit.image
    if reported and not reported.startswith(_ID_BEGINS):
        if is_same_image(reported, container.image):
            return reported
        is_as_asked = unit.annotations.get(names.CONTAINER_HASH) == container_hash(container)
        return container.image if is_as_asked else reported
    if previous is not None and is_of_unit(previous, unit.id):
        return previous.image
    return container.image


def _image_id(frame: Frame, unit: UnitSummary, previous: ContainerStatus | None) -> str:
    status = frame.facts.snapshot.status_of(unit.id) if frame.facts.snapshot is not None else None
    if status is not None and status.image_ref:
        return status.image_ref
    if previous is not None and is_of_unit(previous, unit.id) and previous.image_id:
        return previous.image_id  # lists contain only the digest of the image itself
    return unit.image_id


def _volume_mounts(container: Container) -> tuple[VolumeMountStatus, ...]:
    return tuple(
        VolumeMountStatus(
            name=mount.name,
            mount_path=mount.mount_path,
            read_only=mount.read_only,
            recursive_read_only=_recursive(mount.recursive_read_only) if mount.read_only else None,
        )
        for mount in container.volume_mounts
    )


def _recursive(wanted: str | None) -> str | None:
    """Return the value of field recursiveReadOnly: Enabled or Disabled.

    None for a mount with IfPossible, because only the runtime knows the result.
    """
    return None if wanted == "IfPossible" else (wanted or "Disabled")


def _joined(from_file: str, from_runtime: str) -> str:
    return f"{from_file}: {from_runtime}" if from_file and from_runtime else from_file or from_runtime


def _cut(text: str, most_bytes: int) -> str:
    raw = text.encode()
    return text if len(raw) <= most_bytes else raw[:most_bytes].decode(errors="ignore")
