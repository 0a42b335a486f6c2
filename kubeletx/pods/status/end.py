"""Completes the container statuses of a deleted pod after all its containers have stopped. Pure.

A container without a known exit code gets exit code 137, so that the pod becomes Failed and controllers can continue:
the Job controller keeps its finalizer on a pod until the pod has a final phase.

Source: kubelet, pkg/kubelet/status/status_manager.go (TerminatePod, hasPodInitialized, initializedContainers).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from msgspec.structs import replace

from kubeletx.api import names
from kubeletx.kube.types.core import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodCondition,
    PodStatus,
)

from ..model.phase import FAILED
from ..model.restart_policy import LOST_EXIT_CODE
from ..model.roles import is_sidecar

STATUS_UNKNOWN = "ContainerStatusUnknown"
MESSAGE = "The container could not be located when the pod was terminated"

Statuses = tuple[ContainerStatus, ...]


def ended_statuses(pod: Pod, init: Statuses, regular: Statuses) -> tuple[Statuses, Statuses]:
    """Return the (init, regular) statuses with a terminated state for each container that should have run.

    Two kinds of containers were never started and stay waiting: regular containers of a pod whose initialisation did
    not finish, and init containers after the last one that was tried.
    """
    if _is_initialized(pod, init, regular):
        regular = tuple(map(_ended, regular))
    due = _count_due(init)
    return (*map(_ended, init[:due]), *init[due:]), regular


def end_of_unknown(pod: Pod, now: datetime) -> PodStatus:
    """Build the final status, Failed, of a deleted pod that this node never started or has no record of.

    It is based on the status in the API server (`pod.status`); containers that ended keep their exit codes.
    """
    status = pod.status
    init, regular = ended_statuses(
        pod,
        _all_of(pod.spec.init_containers, status.init_container_statuses),
        _all_of(pod.spec.containers, status.container_statuses),
    )
    return replace(
        status,
        observed_generation=pod.metadata.generation,
        phase=FAILED,
        init_container_statuses=init,
        container_statuses=tuple(replace(container_status, ready=False) for container_status in regular),
        conditions=tuple(
            _unready(condition, pod.metadata.generation, now) for condition in status.conditions
        ),
    )


def _all_of(containers: Iterable[Container], known: Statuses) -> Statuses:
    by_name = {status.name: status for status in known}
    return tuple(by_name.get(container.name) or _unknown(container) for container in containers)


def _unknown(container: Container) -> ContainerStatus:
    return ContainerStatus(
        name=container.name, image=container.image, image_id="", ready=False, restart_count=0
    )


def _unready(condition: PodCondition, generation: int | None, now: datetime) -> PodCondition:
    if condition.type not in (names.POD_READY, names.CONTAINERS_READY):
        return condition
    since = condition.last_transition_time if condition.status == "False" else now
    return replace(
        condition,
        status="False",
        reason="PodFailed",
        message=None,
        last_transition_time=since,
        observed_generation=generation,
    )


def _ended(status: ContainerStatus) -> ContainerStatus:
    if status.state.terminated is not None:
        return status
    end = ContainerStateTerminated(exit_code=LOST_EXIT_CODE, reason=STATUS_UNKNOWN, message=MESSAGE)
    return replace(status, state=ContainerState(terminated=end), ready=False, started=False)


def _is_initialized(pod: Pod, init: Statuses, regular: Statuses) -> bool:
    if not init or any(_was_tried(status) for status in regular):
        return True
    last = init[-1]
    container = next(
        (candidate for candidate in pod.spec.init_containers if candidate.name == last.name), None
    )
    if container is not None and is_sidecar(container):
        return last.state.running is not None and bool(last.started)
    ends = (last.state.terminated, last.last_state.terminated)
    return any(end is not None and end.exit_code == 0 for end in ends)


def _count_due(init: Statuses) -> int:
    """Return the number of init containers up to the last one that was started; at least one if there are any."""
    tried = [number for number, status in enumerate(init, start=1) if _was_tried(status)]
    return max(tried, default=min(len(init), 1))


def _was_tried(status: ContainerStatus) -> bool:
    state = status.state
    return state.running is not None or any(
        end is not None for end in (state.terminated, status.last_state.terminated)
    )
