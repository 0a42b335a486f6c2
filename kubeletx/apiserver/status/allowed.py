"""`allowed`: changes a pod's status so that the API server accepts it. Pure.

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

from kubeletx.kube.types.core import Container, ContainerStatus, Pod, PodStatus
from kubeletx.pods import RESTART_ALL, should_restart


def allowed(pod: Pod, wanted: PodStatus) -> PodStatus:
    """Return `wanted`, except that containers which may not restart stay terminated as in `pod.status`.

    `pod`: the pod as in the API server. `wanted`: the status that this node would report.
    """
    spec, current = pod.spec, pod.status
    every = (*spec.containers, *spec.init_containers)
    if any(rule.action == RESTART_ALL for one in every for rule in one.restart_policy_rules):
        return wanted
    policy = spec.restart_policy

    def kept(
        known: Iterable[ContainerStatus], reported: tuple[ContainerStatus, ...]
    ) -> tuple[ContainerStatus, ...]:
        final = {one.name: one for one in known if _is_final(one, containers, policy)}
        return tuple(
            final[one.name] if one.state.terminated is None and one.name in final else one for one in reported
        )

    containers = {one.name: one for one in every}
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
