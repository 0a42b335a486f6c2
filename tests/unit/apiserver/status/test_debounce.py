"""Which statuses may wait for the next one."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.apiserver.status.allowed import is_startup_only
from kubeletx.kube.types.core import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    PodCondition,
    PodIP,
    PodStatus,
)

ENDED = ContainerState(terminated=ContainerStateTerminated(exit_code=1))


def waiting(reason: str = "ContainerCreating", message: str | None = None) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))


def container(state: ContainerState, **more: Any) -> ContainerStatus:
    return ContainerStatus(
        name="c", image="i", image_id="", ready=False, restart_count=0, state=state, **more
    )


def status(*containers: ContainerStatus, **more: Any) -> PodStatus:
    return PodStatus(**{"phase": "Pending", "container_statuses": containers, **more})


WAY = status(container(waiting()))


def test_steps_of_an_undisturbed_start_may_wait() -> None:
    ready = PodCondition(type="PodReadyToStartContainers", status="True")
    assert is_startup_only(WAY)
    assert is_startup_only(replace(WAY, conditions=(ready,), pod_ips=(PodIP(ip="10.0.0.1"),)))
    later = (container(waiting("PodInitializing")),)
    assert is_startup_only(
        replace(WAY, container_statuses=later, init_container_statuses=WAY.container_statuses)
    )


@pytest.mark.parametrize(
    "news",
    [
        replace(WAY, phase="Running"),
        replace(WAY, phase="Failed"),
        replace(WAY, phase="Succeeded"),
        replace(WAY, phase="Failed", reason="Evicted", container_statuses=()),
        replace(WAY, reason="RuntimeNotReady"),
        replace(WAY, message="waits for runtime one"),
        replace(WAY, container_statuses=()),
        status(container(waiting("ErrImagePull", "no such image"))),
        status(container(waiting("ContainerCreating", "FailedMount: no such device"))),
        status(container(waiting()), container(ContainerState(running=ContainerStateRunning()))),
        status(container(waiting()), container(ENDED)),
        status(container(waiting(), last_state=ENDED)),
        replace(WAY, init_container_statuses=(container(ContainerState(running=ContainerStateRunning())),)),
        replace(WAY, init_container_statuses=(container(ENDED),)),
    ],
)
def test_whatever_runs_ends_fails_or_is_waited_for_is_reported_at_once(news: PodStatus) -> None:
    assert not is_startup_only(news)
