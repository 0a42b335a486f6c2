"""The phase of a pod, computed from its container statuses (docs/kubelet-parity.md, row ST1).

    an init container failed and is not run again      Failed
    init not finished, or something never started      Pending
    something runs and nothing is unknown              Running
    all regular containers ended: one will run again   Running
                                  all with exit code 0 Succeeded
                                  otherwise            Failed

Succeeded and Failed are final; `status.build` keeps them. For a container that waits for its next run, the exit
code of its last run counts. Sidecars that ended do not count. Source: kubelet, kubelet_pods.go getPhase.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from kubeletx.kube.types.core import Container, ContainerState, ContainerStatus, Pod

from .restart_policy import should_restart
from .roles import init_units, is_sidecar, regular_units

PENDING, RUNNING, SUCCEEDED, FAILED = "Pending", "Running", "Succeeded", "Failed"
FINAL = (SUCCEEDED, FAILED)


class _Count(msgspec.Struct):
    """Numbers of a pod's regular containers and sidecars by state, and the state of its init containers."""

    init_open: bool = False
    init_failed: bool = False
    waiting: int = 0
    running: int = 0
    unknown: int = 0
    stopped: int = 0
    succeeded: int = 0
    again: int = 0


def phase_of(
    pod: Pod, statuses: Sequence[ContainerStatus], *, initialized: bool = False, is_over: bool = False
) -> str:
    """Compute the pod's phase from `statuses`: of init and regular containers, in any order.

    `initialized`: a regular container ran in this sandbox, so a restarting sidecar does not set the pod back to
    Pending. `is_over`: the pod was deleted, so no container runs again, whatever the restart policy says.
    """
    by_name = {status.name: status for status in statuses}
    count = _Count()
    for container in init_units(pod):
        status = by_name.get(container.name)
        if is_sidecar(container):
            _count_sidecar(status, count, initialized)
        else:
            _count_init(pod, container, status, count, initialized)
    for container in regular_units(pod):
        _count_regular(pod, container, by_name.get(container.name), count)
    return _decide(count, is_over)


def last_exit_code(status: ContainerStatus) -> int | None:
    """Return the exit code of an ended container or, if it waits for its next run, of its last run.

    None if the container runs or has not run yet.
    """
    state = status.state
    if state.terminated is not None:
        return state.terminated.exit_code
    if is_waiting(state) and status.last_state.terminated is not None:
        return status.last_state.terminated.exit_code
    return None


def is_waiting(state: ContainerState) -> bool:
    """Return True if the container is waiting; an empty state means waiting, too."""
    return state.running is None and state.terminated is None


def _count_init(
    pod: Pod, container: Container, status: ContainerStatus | None, count: _Count, initialized: bool
) -> None:
    code = last_exit_code(status) if status is not None else None
    if status is None or code is None:
        count.init_open |= not initialized  # the runtime may have removed a finished one
    elif code != 0 and not should_restart(container, pod.spec.restart_policy, code, is_init=True):
        count.init_failed = True


def _count_sidecar(status: ContainerStatus | None, count: _Count, initialized: bool) -> None:
    if status is None:
        count.unknown += 1
    elif status.state.running is not None:
        count.running += 1
        count.init_open |= not status.started and not initialized
    elif last_exit_code(status) is None:
        count.waiting += 1
        count.init_open |= not initialized


def _count_regular(pod: Pod, container: Container, status: ContainerStatus | None, count: _Count) -> None:
    if status is None:
        count.unknown += 1
        return
    code = last_exit_code(status)
    if status.state.running is not None:
        count.running += 1
    elif code is None:
        count.waiting += 1
    else:
        count.stopped += 1
        count.succeeded += code == 0
        count.again += should_restart(container, pod.spec.restart_policy, code)


def _decide(count: _Count, is_over: bool) -> str:
    if count.init_failed:
        return FAILED
    if count.init_open or count.waiting or count.unknown:
        return PENDING
    if count.running:
        return RUNNING
    if not count.stopped:
        return PENDING
    if count.again and not is_over:
        return RUNNING
    return SUCCEEDED if count.stopped == count.succeeded else FAILED
