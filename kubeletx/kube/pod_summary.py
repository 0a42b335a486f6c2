"""Computes the columns READY, STATUS and RESTARTS of a pod, as in kubectl's table.

STATUS is more precise than the pod's phase: it shows the state of the first unfinished init container, else the reason
of a waiting or ended container, else the pod's reason or phase. Source: kubernetes,
pkg/printers/internalversion/printers.go (printPod).
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from kubeletx.api import names
from kubeletx.kube.text.human import human_duration

if TYPE_CHECKING:
    from kubeletx.kube.types.core import Container, ContainerState, ContainerStatus, Pod

RUNTIME_UNREACHABLE = "RuntimeUnreachable"
"""STATUS of a pod whose runtime does not answer; the other columns show the last known values."""

_POWERS = {"paused": "Paused", "suspended": "Suspended", "shutdown": "Shutdown", "crashed": "Crashed"}

_RESTS = {"UnitsPaused": "Standby", "UnitsSuspended": "Hibernated"}
"""STATUS of a pod of containers, by the reason of its condition `names.UNITS_RUNNING`."""


class PodSummary(NamedTuple):
    """Texts of a pod in the columns READY, STATUS and RESTARTS, such as ``1/2``, ``Running`` and ``3 (5m ago)``."""

    ready: str
    status: str
    restarts: str


class _Count(NamedTuple):
    ready: int = 0
    restarts: int = 0
    last: datetime | None = None

    def add(self, status: ContainerStatus) -> _Count:
        ended = status.last_state.terminated
        times = [at for at in (self.last, ended.finished_at if ended is not None else None) if at is not None]
        last = max(times, default=None)
        return self._replace(restarts=self.restarts + status.restart_count, last=last)


def summarise(pod: Pod, now: datetime) -> PodSummary:
    """Compute the cells of one pod in the columns READY, STATUS and RESTARTS."""
    if pod.spec.virtual_machine is not None or pod.status.virtual_machine_status is not None:
        return _machine(pod, now)
    sidecars = {c.name for c in pod.spec.init_containers if _is_sidecar(c)}
    total = len(pod.spec.containers) + len(sidecars)
    reason, count, sidecar_count = _init(pod, sidecars)
    if not reason or _condition(pod, "Initialized"):
        reason, count = _regular(pod, reason or _first(pod), sidecar_count)
    if reason == "Running":
        reason = _standby(pod) or reason
    return PodSummary(f"{count.ready}/{total}", _ending(pod, reason), _restarts(count, now))


def _standby(pod: Pod) -> str:
    """Return Standby or Hibernated for a pod with frozen containers, which Kubernetes shows as running; else empty."""
    for condition in pod.status.conditions:
        if condition.type == names.UNITS_RUNNING and condition.status == "False":
            return _RESTS.get(condition.reason or "", "")
    return ""


def _machine_standby(pod: Pod) -> str:
    """Return Standby or Hibernated for a machine on standby; else empty."""
    standby = next(
        (condition for condition in pod.status.conditions if condition.type == names.STANDBY_CONDITION), None
    )
    return standby.reason or "" if standby is not None and standby.status == "True" else ""


def _first(pod: Pod) -> str:
    return pod.status.reason or pod.status.phase or "Unknown"


def _is_sidecar(container: Container) -> bool:
    return container.restart_policy == "Always"


def _condition(pod: Pod, type_: str) -> bool:
    return any(c.type == type_ and c.status == "True" for c in pod.status.conditions)


def _init(pod: Pod, sidecars: set[str]) -> tuple[str, _Count, _Count]:
    """Return the STATUS text for unfinished init containers, the counts of init containers and of sidecars.

    The text is empty when every init container has finished and every sidecar has started. `sidecars`: names of the
    init containers that are sidecars. The counts end at the first unfinished container.
    """
    every, ours = _Count(), _Count()
    for number, status in enumerate(pod.status.init_container_statuses):
        every = every.add(status)
        if status.name in sidecars:
            ours = ours.add(status)
        ended, waiting = status.state.terminated, status.state.waiting
        if ended is not None and ended.exit_code == 0:
            continue
        if status.name in sidecars and status.started:
            if status.ready:
                every, ours = every._replace(ready=every.ready + 1), ours._replace(ready=ours.ready + 1)
            continue
        if ended is not None:
            return f"Init:{ended.reason or _exit(status.state)}", every, ours
        if waiting is not None and waiting.reason and waiting.reason != "PodInitializing":
            return f"Init:{waiting.reason}", every, ours
        return f"Init:{number}/{len(pod.spec.init_containers)}", every, ours
    return "", every, ours


def _regular(pod: Pod, reason: str, count: _Count) -> tuple[str, _Count]:
    """Return the STATUS text that the regular containers give, and `count` with their ready and restart numbers added.

    The text comes from the first container that is waiting or has terminated; without such a container it is `reason`.
    """
    running = False
    for status in reversed(pod.status.container_statuses):
        count = count.add(status)
        state = status.state
        if state.waiting is not None and state.waiting.reason:
            reason = state.waiting.reason
        elif state.terminated is not None:
            reason = state.terminated.reason or _exit(state)
        elif status.ready and state.running is not None:
            running = True
            count = count._replace(ready=count.ready + 1)
    if reason == "Completed" and running:
        reason = "Running" if _condition(pod, "Ready") else "NotReady"
    return reason, count


def _exit(state: ContainerState) -> str:
    ended = state.terminated
    if ended is None:
        return ""
    return f"Signal:{ended.signal}" if ended.signal else f"ExitCode:{ended.exit_code}"


def _ending(pod: Pod, reason: str) -> str:
    if pod.metadata.annotations.get(names.ORPHANED) == "true":
        return "Orphaned"
    if pod.metadata.deletion_timestamp is not None and pod.status.phase not in ("Succeeded", "Failed"):
        return "Terminating"
    if _is_unseen(pod):
        return RUNTIME_UNREACHABLE
    return reason


def _is_unseen(pod: Pod) -> bool:
    """Return True if the pod has not ended and its runtime does not answer, so that its state may be outdated."""
    is_over = pod.status.phase in ("Succeeded", "Failed")
    away = (c.type == names.RUNTIME_REACHABLE and c.status == "False" for c in pod.status.conditions)
    return not is_over and any(away)


def _restarts(count: _Count, now: datetime) -> str:
    if count.restarts and count.last is not None:
        return f"{count.restarts} ({human_duration((now - count.last).total_seconds())} ago)"
    return str(count.restarts)


def _machine(pod: Pod, now: datetime) -> PodSummary:
    """Compute the columns of a virtual machine as for a pod with one container.

    STATUS shows a power state other than running, such as Paused; for a machine on standby, Standby or Hibernated.
    """
    status = pod.status.virtual_machine_status
    reason, count = _regular(pod, _first(pod), _Count())
    if status is None:
        return PodSummary("0/1", _ending(pod, reason), _restarts(count, now))
    waits = any(
        container_status.state.waiting is not None for container_status in pod.status.container_statuses
    )
    if pod.status.phase == "Running" and not waits:
        reason = _machine_standby(pod) or _POWERS.get(status.power_state or "", reason)
    restarts = _restarts(count._replace(restarts=status.restart_count), now)
    return PodSummary(f"{int(status.ready)}/1", _ending(pod, reason), restarts)
