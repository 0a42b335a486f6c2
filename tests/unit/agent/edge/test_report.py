"""Report to the guardian: contact with controllers, pods and plugins' checks."""

from __future__ import annotations

import pytest

from kubeletx.agent.edge.report import (
    ControllerContact,
    api_contact,
    best,
    core_contact,
    pods_by_readiness,
    topic_check,
)
from kubeletx.health.model import Reach
from kubeletx.kube.types.core import PodCondition, PodStatus
from kubeletx.node.readiness import CheckFacts


@pytest.mark.parametrize(
    ("silent", "problem", "refusal", "reach"),
    [
        (float("inf"), "", "", Reach.UNKNOWN),
        (float("inf"), "connection refused", "", Reach.FAIL),
        (5.0, "", "", Reach.SUCCESS),
        (41.0, "", "", Reach.FAIL),
        (5.0, "connection refused", "", Reach.FAIL),
        (5.0, "", "503: upgrading", Reach.TEMPORARY_FAIL),
    ],
)
def test_an_api_server_is_reached_while_it_answers(
    silent: float, problem: str, refusal: str, reach: Reach
) -> None:
    found = api_contact("https://api", silent_seconds=silent, problem=problem, refusal=refusal, fresh=40.0)
    assert found == ControllerContact(reach, "apiserver https://api")


def test_the_best_contact_counts() -> None:
    lost, there = core_contact("a:1", is_connected=False), core_contact("b:1", is_connected=True)
    refused = ControllerContact(Reach.TEMPORARY_FAIL, "apiserver")
    assert best([lost, refused, there]) == ControllerContact(Reach.SUCCESS, "fornaxcore b:1")
    assert best([lost, refused]) == refused
    assert best([]) == ControllerContact(Reach.UNKNOWN, "")


def pod(phase: str, *held: str) -> PodStatus:
    return PodStatus(phase=phase, conditions=tuple(PodCondition(type=type_, status="True") for type_ in held))


def test_pods_that_ended_or_stand_by_are_not_missed() -> None:
    pods = {
        "ready": pod("Running", "Ready"),
        "frozen": pod("Running", "kubeletx.io/Standby"),
        "done": pod("Succeeded"),
        "failed": pod("Failed"),
        "waiting": pod("Pending"),
        "unready": pod("Running", "PodScheduled"),
        "new": None,
    }
    ready, not_ready = pods_by_readiness(pods.items(), 9)
    assert not_ready == ("waiting", "unready", "new")
    assert set(ready) < pods.keys() - set(not_ready)


@pytest.mark.parametrize(
    ("status", "reason", "ok", "level"),
    [
        ("True", "CheckPassed", True, "required"),
        ("True", "CheckWarning", False, "wanted"),
        ("False", "CheckFailed", False, "required"),
        ("Unknown", "CheckBroken", None, "required"),
    ],
)
def test_a_check_of_a_plugin_is_required_unless_it_warns(
    status: str, reason: str, ok: bool | None, level: str
) -> None:
    found = topic_check(CheckFacts(name="disk", status=status, reason=reason, message="text"))
    assert (found.name, found.ok, found.level, found.message) == ("disk", ok, level, "text")
