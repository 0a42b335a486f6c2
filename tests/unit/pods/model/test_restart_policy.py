"""Restart rules (B4, L7)."""

from __future__ import annotations

import pytest

from kubeletx.kube.types.core import Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes
from kubeletx.pods.model.restart_policy import should_restart


@pytest.mark.parametrize(
    ("policy", "exit_code", "again"),
    [
        ("Always", 0, True),
        ("Always", 1, True),
        ("OnFailure", 0, False),
        ("OnFailure", 137, True),
        ("Never", 0, False),
        ("Never", 1, False),
        (None, 0, True),
    ],
)
def test_the_pods_policy_decides(policy: str | None, exit_code: int, again: bool) -> None:
    assert should_restart(Container(name="a"), policy, exit_code) is again


@pytest.mark.parametrize(
    ("own", "pods", "exit_code", "again"),
    [
        ("Always", "Never", 0, True),
        ("Never", "Always", 1, False),
        ("OnFailure", "Never", 1, True),
        ("OnFailure", "Always", 0, False),
    ],
)
def test_the_containers_own_policy_wins(own: str, pods: str, exit_code: int, again: bool) -> None:
    assert should_restart(Container(name="a", restart_policy=own), pods, exit_code) is again


def _rule(operator: str, *values: int) -> ContainerRestartRule:
    codes = ContainerRestartRuleOnExitCodes(operator=operator, values=values)
    return ContainerRestartRule(action="Restart", exit_codes=codes)


def test_rules_on_exit_codes_win_over_the_policy() -> None:
    container = Container(name="a", restart_policy="Never", restart_policy_rules=(_rule("In", 42, 43),))
    assert should_restart(container, "Never", 42)
    assert not should_restart(container, "Never", 1)
    others = Container(name="a", restart_policy="Never", restart_policy_rules=(_rule("NotIn", 0, 1),))
    assert should_restart(others, "Never", 7)
    assert not should_restart(others, "Never", 1)


def test_a_container_whose_image_changed_runs_again_whatever_the_policy() -> None:
    assert should_restart(Container(name="a"), "Never", 0, killed="SpecChanged")
    assert should_restart(Container(name="a", restart_policy="Never"), "OnFailure", 1, killed="SpecChanged")


def test_an_unhealthy_container_runs_again_even_if_it_exited_with_0_unless_policy_is_never() -> None:
    container = Container(name="a")
    assert should_restart(container, "OnFailure", 0, killed="Unhealthy")
    assert should_restart(container, "Always", 0, killed="Unhealthy")
    assert not should_restart(container, "Never", 0, killed="Unhealthy")


def test_an_init_container_that_exited_with_0_is_done() -> None:
    assert not should_restart(Container(name="a"), "Always", 0, is_init=True)
    assert should_restart(Container(name="a"), "Always", 1, is_init=True)
    assert not should_restart(Container(name="a"), "Never", 1, is_init=True)
