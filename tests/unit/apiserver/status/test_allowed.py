"""Containers that have ended and run again against their policy: what is sent of them."""

from __future__ import annotations

import pytest

from kubeletx.apiserver.status.allowed import allowed
from kubeletx.kube.types.core import (
    Container,
    ContainerRestartRule,
    ContainerRestartRuleOnExitCodes,
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodSpec,
    PodStatus,
)

RUNNING = ContainerState(running=ContainerStateRunning())
WAITING = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))


def ended(code: int) -> ContainerState:
    return ContainerState(terminated=ContainerStateTerminated(exit_code=code))


def status(state: ContainerState, name: str = "c") -> ContainerStatus:
    return ContainerStatus(name=name, image="i", image_id="", ready=False, restart_count=0, state=state)


def shown(pod_policy: str, state: ContainerState, now: ContainerState, **container: object) -> ContainerState:
    """The state that is sent of a container that the API server has in another."""
    one = Container(name="c", image="i", **container)  # type: ignore[arg-type]
    pod = Pod(
        spec=PodSpec(containers=(one,), restart_policy=pod_policy),
        status=PodStatus(container_statuses=(status(state),)),
    )
    found = allowed(pod, PodStatus(phase="Running", container_statuses=(status(now),)))
    assert found.phase == "Running"
    return found.container_statuses[0].state


@pytest.mark.parametrize("now", [RUNNING, WAITING, ContainerState()])
@pytest.mark.parametrize(
    ("policy", "code", "own", "may"),
    [
        ("Always", 0, None, True),
        ("Always", 1, None, True),
        ("OnFailure", 0, None, False),
        ("OnFailure", 1, None, True),
        ("Never", 0, None, False),
        ("Never", 1, None, False),
        ("Always", 1, "Never", False),
        ("Never", 0, "Always", True),
        ("Never", 1, "OnFailure", True),
    ],
)
def test_a_container_leaves_its_end_where_its_policy_says_so(
    policy: str, code: int, own: str | None, may: bool, now: ContainerState
) -> None:
    assert shown(policy, ended(code), now, restart_policy=own) == (now if may else ended(code))


def test_a_container_that_lives_or_ends_again_is_shown_as_it_is() -> None:
    assert shown("Never", RUNNING, WAITING) == WAITING
    assert shown("Never", ended(0), ended(3)) == ended(3)


@pytest.mark.parametrize(("code", "may"), [(42, True), (1, False)])
def test_rules_on_exit_codes_count(code: int, may: bool) -> None:
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(42,))
    rules = (ContainerRestartRule(action="Restart", exit_codes=codes),)
    found = shown("Never", ended(code), RUNNING, restart_policy="Never", restart_policy_rules=rules)
    assert found == (RUNNING if may else ended(code))


def test_a_pod_whose_containers_restart_together_hides_nothing() -> None:
    codes = ContainerRestartRuleOnExitCodes(operator="In", values=(42,))
    rules = (ContainerRestartRule(action="RestartAllContainers", exit_codes=codes),)
    found = shown("Never", ended(0), RUNNING, restart_policy="Never", restart_policy_rules=rules)
    assert found == RUNNING


def test_init_containers_that_run_again_are_shown_as_ended_beside_the_others() -> None:
    spec = PodSpec(
        containers=(Container(name="c", image="i"),),
        init_containers=(
            Container(name="i", image="i"),
            Container(name="s", image="i", restart_policy="Always"),
        ),
        restart_policy="OnFailure",
    )
    before = PodStatus(init_container_statuses=(status(ended(0), "i"), status(ended(0), "s")))
    wanted = PodStatus(
        init_container_statuses=(status(RUNNING, "i"), status(RUNNING, "s")),
        container_statuses=(status(WAITING),),
    )
    found = allowed(Pod(spec=spec, status=before), wanted)
    assert [one.state for one in found.init_container_statuses] == [ended(0), RUNNING]
    assert found.container_statuses == wanted.container_statuses
