"""Rules for the nodes that may be treated: storms, control planes, other actors, planned work and pauses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.kube.types.node import Taint
from kubeletx.remedy.model import RemedySettings
from kubeletx.remedy.policy import most_unhealthy
from tests.unit.remedy.trial import Trial, failing

TEN = tuple(f"n{number}" for number in range(10))
PLANE = {"node-role.kubernetes.io/control-plane": ""}


def trial_of(names: Iterable[str] = TEN, **settings: Any) -> Trial:
    """Return a trial whose nodes have been well for longer than the cooldown."""
    made = Trial(names, settings=RemedySettings(**{"power_wait": 20.0, **settings}))
    made.run(100, step=100)
    return made


def mark(trial: Trial, name: str, *, taint: str = "", **metadata: Any) -> None:
    node = trial.nodes[name]
    spec = replace(node.spec, taints=(Taint(key=taint, effect="NoSchedule"),)) if taint else node.spec
    trial.nodes[name] = replace(node, metadata=replace(node.metadata, **metadata), spec=spec)


def holds(trial: Trial, name: str) -> tuple[str, ...]:
    return trial.plans()[name].facts.holds


def treated(trial: Trial) -> set[str]:
    """Return the nodes for which a method was carried out."""
    return {call.partition("/")[0] for call in trial.calls}


@pytest.mark.parametrize(
    ("limit", "count", "at_least_one", "allowed"),
    [
        ("40%", 10, True, 4),
        ("40%", 6, True, 2),  # rounded down
        ("40%", 2, True, 1),
        ("40%", 2, False, 0),
        ("0", 9, True, 1),
        ("0", 9, False, 0),
        ("3", 5, True, 3),
        ("100%", 5, True, 5),
    ],
)
def test_a_percentage_is_rounded_down_to_at_least_one(
    limit: str, count: int, at_least_one: bool, allowed: int
) -> None:
    settings = RemedySettings(max_unhealthy=limit, at_least_one=at_least_one)
    assert most_unhealthy(settings, count) == allowed


def test_in_a_storm_no_step_begins_and_nodes_that_recover_are_released() -> None:
    trial = trial_of(power_wait=60.0)
    trial.set("n0", "Unknown")
    trial.run(10)
    assert trial.state("n0") == "Isolation/Done"
    for name in TEN[1:5]:
        trial.set(name, "Unknown")
    trial.run(120)
    assert treated(trial) == {"n0"}
    assert trial.calls == ["n0/fc-off"]  # not even its power management
    assert holds(trial, "n1") == ("storm: 5 of 10 nodes are sick, at most 4 may be",)
    trial.set("n0", "True", reboots=True)
    trial.set("n5", "Unknown")
    trial.run(60)
    assert trial.state("n0") == "Recovery/Final"
    assert treated(trial) == {"n0"}


def test_after_a_storm_nothing_begins_before_the_cooldown_ends() -> None:
    trial = trial_of(cooldown=60.0)
    for name in TEN[:5]:
        trial.set(name, "Unknown")
    trial.run(30)
    for name in TEN[1:5]:
        trial.set(name, "True")
    trial.run(55)
    assert (trial.calls, holds(trial, "n0")) == ([], ("the storm has ended less than 60 s ago",))
    trial.run(10)
    assert treated(trial) == {"n0"}


def test_nodes_that_are_treated_count_as_unhealthy_until_their_flow_ends() -> None:
    trial = trial_of(max_unhealthy="1", quiet_time=300.0, cooldown=0.0)
    trial.set("n0", "Unknown")
    trial.run(10)
    trial.set("n0", "True", reboots=True)
    trial.set("n1", "Unknown")
    trial.run(200)
    assert treated(trial) == {"n0"}
    trial.run(200)
    assert "n1" in treated(trial)


def test_a_domain_has_a_limit_of_its_own() -> None:
    trial = trial_of(domain_label="zone", max_unhealthy="50%", power_wait=9999.0)
    for number, name in enumerate(TEN):
        mark(trial, name, labels={"zone": "a" if number < 4 else "b"})
    for name in ("n0", "n1", "n2", "n9"):
        trial.set(name, "Unknown")
    trial.run(30)
    assert treated(trial) == {"n9"}
    assert holds(trial, "n0") == ("storm: 3 of 4 nodes of zone=a are sick, at most 2 may be",)


def test_when_all_nodes_are_sick_at_once_the_management_side_is_suspected() -> None:
    trial = trial_of(("n1", "n2"), max_unhealthy="100%")
    trial.set("n1", "Unknown")
    trial.set("n2", "Unknown")
    trial.run(60)
    assert (treated(trial), len(holds(trial, "n1"))) == (set(), 1)
    assert "management side" in holds(trial, "n1")[0]


def test_the_only_node_of_a_cluster_can_be_treated() -> None:
    trial = trial_of(("n1",))
    trial.set("n1", "Unknown")
    trial.run(60)
    assert treated(trial) == {"n1"}


def test_one_node_at_a_time_even_when_two_fall_together() -> None:
    trial = trial_of(one_at_a_time=True, cooldown=0.0)
    trial.set("n3", "Unknown")
    trial.set("n4", "Unknown")
    trial.run(60)
    assert treated(trial) == {"n3"}
    trial.set("n3", "True", reboots=True)
    trial.run(60)
    assert trial.state("n3") == "Recovery/Final"
    assert "n4/pdu-off" in trial.calls


def test_a_limit_that_is_lowered_while_two_flows_run_blocks_neither_for_ever() -> None:
    trial = trial_of()
    trial.set("n3", "Unknown")
    trial.set("n4", "Unknown")
    trial.run(10)
    trial.configured.settings = replace(trial.configured.settings, one_at_a_time=True)
    trial.run(60)
    assert {"n3/pdu-off"} == {call for call in trial.calls if "pdu-off" in call}


def test_of_the_control_plane_one_node_at_a_time_and_never_the_last_ready_one() -> None:
    trial = trial_of(TEN, cooldown=0.0)
    for name in ("n0", "n1", "n2"):
        mark(trial, name, labels=PLANE)
    trial.set("n0", "Unknown")
    trial.set("n1", "Unknown")
    trial.run(60)
    assert treated(trial) == {"n0"}
    assert holds(trial, "n1") == ("one control plane node at a time: n0 is treated",)
    trial.set("n2", "Unknown")
    trial.run(1)
    assert "no other control plane node is ready" in holds(trial, "n0")


def test_the_node_of_the_controller_is_left_alone() -> None:
    trial = trial_of()
    trial.policy = replace(trial.policy, own_node="n1")
    trial.set("n1", "Unknown")
    trial.run(60)
    assert (trial.calls, holds(trial, "n1")) == ([], ("this controller runs on the node",))


@pytest.mark.parametrize(
    "marks",
    [
        {"labels": {"remediation.medik8s.io/exclude-from-remediation": "true"}},
        {"labels": {"fencing": "disabled"}},
        {"taint": "ToBeDeletedByClusterAutoscaler"},
        {"taint": "node.kubernetes.io/out-of-service"},
        {"annotations": {"kubeletx.io/drained": ""}},
        {"annotations": {"weave.works/kured-reboot-in-progress": "now"}},
        {"annotations": {"remedy.kubeletx.io/pause": ""}},
    ],
    ids=str,
)
def test_nodes_of_other_actors_and_excluded_or_paused_nodes_are_left_alone(marks: dict[str, Any]) -> None:
    trial = trial_of()
    mark(trial, "n1", **marks)
    trial.set("n1", "Unknown")
    trial.run(60)
    assert trial.calls == []
    facts = trial.plans()["n1"].facts
    assert len((*facts.holds, *facts.pauses)) == 1


def test_where_kube_fencing_marks_nodes_the_others_shut_down_as_planned() -> None:
    trial = trial_of()
    for name in TEN[1:]:
        mark(trial, name, labels={"fencing": "enabled"})
    for name in ("n0", "n1"):
        trial.set(name, "Unknown")
    trial.run(60)
    assert treated(trial) == {"n1"}


def test_planned_work_protects_a_node_for_a_limited_time() -> None:
    trial = trial_of(planned_limit=600.0)
    trial.set("n1", "True", "kubeletx.io/UpgradeTesting")
    trial.set("n1", "Unknown")
    trial.run(590)
    assert (trial.calls, holds(trial, "n1")) == (
        [],
        ("planned: condition kubeletx.io/UpgradeTesting is True",),
    )
    trial.run(20)
    assert treated(trial) == {"n1"}


def test_a_paused_flow_does_nothing_until_the_pause_ends() -> None:
    trial = trial_of()
    trial.set("n1", "Unknown")
    trial.run(10)
    trial.configured.settings = replace(trial.configured.settings, pause=True)
    trial.run(100)
    assert trial.calls == ["n1/fc-off"]
    trial.configured.settings = replace(trial.configured.settings, pause=False)
    trial.run(1)
    assert "n1/pdu-off" in trial.calls


def test_a_failed_step_is_not_tried_again_in_a_storm() -> None:
    trial = trial_of(retries=5)
    trial.outcomes["fc-off"] = failing()
    trial.set("n1", "Unknown")
    trial.run(10)
    for name in TEN[2:8]:
        trial.set(name, "Unknown")
    calls = list(trial.calls)
    trial.run(120)
    assert trial.calls == calls


def test_without_a_trusted_view_of_the_cluster_nothing_is_done() -> None:
    trial = trial_of()
    trial.policy = replace(trial.policy, problem="the API server does not answer")
    trial.set("n1", "Unknown")
    trial.run(60)
    assert (trial.calls, trial.fences) == ([], {})


def test_while_another_actor_has_the_nodes_lease_nothing_is_done() -> None:
    trial = trial_of()
    trial.set("n1", "Unknown")
    trial.run(10)
    trial.policy = replace(trial.policy, actors={"n1": "NodeHealthCheck-workers"})
    trial.run(60)
    assert trial.calls == ["n1/fc-off"]
    assert "NodeHealthCheck-workers" in trial.plans()["n1"].facts.pauses[0]
