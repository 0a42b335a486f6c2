"""`allowed`: changes a pod's status so that the API server accepts it. `is_startup_only`: what may be sent later. Pure.

An API server refuses a whole status in which a terminated container runs again against its restart policy. That happens
on a node: a failed probe ends a container with exit code 0 under OnFailure and starts another, init containers run
again in a new sandbox, a pod whose runtime was removed starts again. Such a container is reported as terminated, as the
API server has it; the rest of the status is reported as it is.

Source: kubernetes, pkg/apis/core/validation ValidateContainerStateTransition; the kubelet sends nothing at all then
(pkg/kubelet/status, checkContainerStateTransition).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from kubeletx.kube.types.core import Container, ContainerState, ContainerStatus, Pod, PodStatus
from kubeletx.pods import CONTAINER_CREATING, POD_INITIALIZING, RESTART_ALL, should_restart


def allowed(pod: Pod, wanted: PodStatus) -> PodStatus:
    """Return `wanted`, except that containers which may not restart stay terminated as in `pod.status`.

    `pod`: the pod as in the API server. `wanted`: the status that this node would report.
    """
    spec, current = pod.spec, pod.status
    every = (*spec.containers, *spec.init_containers)
    if any(rule.action == RESTART_ALL for container in every for rule in container.restart_policy_rules):
        return wanted
    policy = spec.restart_policy

    def kept(
        known: Iterable[ContainerStatus], reported: tuple[ContainerStatus, ...]
    ) -> tuple[ContainerStatus, ...]:
        final = {status.name: status for status in known if _is_final(status, containers, policy)}
        return tuple(
            final[status.name] if status.state.terminated is None and status.name in final else status
            for status in reported
        )

    containers = {container.name: container for container in every}
    return replace(
        wanted,
        container_statuses=kept(current.container_statuses, wanted.container_statuses),
        init_container_statuses=kept(current.init_container_statuses, wanted.init_container_statuses),
    )


def _is_final(status: ContainerStatus, containers: Mapping[str, Container], policy: str | None) -> bool:
    ended = status.state.terminated
    if ended is None:
        return False
    container = containers.get(status.name, Container(name=status.name))
    return not should_restart(container, policy, ended.exit_code)


_ON_THE_WAY = frozenset({CONTAINER_CREATING, POD_INITIALIZING})


def is_startup_only(status: PodStatus) -> bool:
    """Return True if the status shows only that the pod is starting, and may wait for a newer one before it is sent.

    A pod before its first start has a new status after each step: admitted, sandbox created, address known. No client
    acts on these, and an undisturbed start takes less than a second. All other statuses are sent at once: something
    runs, has ended, fails, or waits.
    """
    if status.phase != "Pending" or status.reason or status.message:
        return False
    containers = (*status.init_container_statuses, *status.container_statuses)
    return bool(containers) and all(_is_on_the_way(container) for container in containers)


def _is_on_the_way(container: ContainerStatus) -> bool:
    waiting = container.state.waiting
    return (
        waiting is not None
        and waiting.reason in _ON_THE_WAY
        and not waiting.message
        and container.last_state == ContainerState()
    )
