"""`is_startup_only`: decides whether a status may wait for a newer one before it is sent. Pure.

A pod before its first start has a new status after each step: admitted, sandbox created, address known. No client acts
on these, and an undisturbed start takes less than a second. All other statuses are sent at once: something runs, has
ended, fails, or waits.
"""

from __future__ import annotations

from kubeletx.kube.types.core import ContainerState, ContainerStatus, PodStatus
from kubeletx.pods import CONTAINER_CREATING, POD_INITIALIZING

_ON_THE_WAY = frozenset({CONTAINER_CREATING, POD_INITIALIZING})


def is_startup_only(status: PodStatus) -> bool:
    """Return True if the status shows only that the pod is starting: nothing has run yet and nothing has failed."""
    if status.phase != "Pending" or status.reason or status.message:
        return False
    containers = (*status.init_container_statuses, *status.container_statuses)
    return bool(containers) and all(_is_on_the_way(one) for one in containers)


def _is_on_the_way(container: ContainerStatus) -> bool:
    waiting = container.state.waiting
    return (
        waiting is not None
        and waiting.reason in _ON_THE_WAY
        and not waiting.message
        and container.last_state == ContainerState()
    )
