"""Unlucky clusters: conditions without a time, flaps, lost boot IDs, and a configuration that changes while a flow runs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubeletx.kube.types.node import NodeCondition
from kubeletx.remedy.config import Configurations
from kubeletx.remedy.model import RemedySettings
from tests.unit.remedy.trial import START, Trial, failing

SETTINGS = RemedySettings(power_wait=20, settle_time=40, quiet_time=10, retries=1, retry_wait=10, restarts=0)
OFF = "n1/pdu-off"


def boot(trial: Trial, boot_id: str) -> None:
    node = trial.nodes["n1"]
    info = replace(node.status.node_info, boot_id=boot_id)
    trial.nodes["n1"] = replace(node, status=replace(node.status, node_info=info))


@pytest.mark.parametrize("since", [None, START + timedelta(days=3650)])
def test_a_condition_without_a_usable_time_counts_from_the_flows_record(since: object) -> None:
    trial = Trial(settings=SETTINGS)
    node = trial.nodes["n1"]
    ready = NodeCondition(type="Ready", status="False", last_transition_time=since)  # type: ignore[arg-type] # parametrised
    trial.nodes["n1"] = replace(node, status=replace(node.status, conditions=(ready,)))
    trial.run(4)
    assert trial.calls == []
    trial.run(2)
    assert trial.calls == ["n1/fc-off"]


def test_a_node_that_flaps_before_its_power_action_waits_again_and_is_switched_off() -> None:
    trial = Trial(settings=SETTINGS)
    trial.outcomes["pdu-off"] = failing()
    trial.set("n1", "Unknown")
    trial.run(26)
    assert trial.state() == "Power-Management/Error"
    del trial.outcomes["pdu-off"]
    trial.set("n1", "True")
    trial.run(2)
    trial.set("n1", "Unknown")
    trial.run(15)
    assert trial.calls.count(OFF) == 1
    trial.run(10)
    assert trial.calls.count(OFF) == 2
    assert trial.state() == "Power-Management/Done"


def test_no_power_action_follows_an_isolation_that_failed_when_the_node_flaps() -> None:
    trial = Trial(settings=SETTINGS)
    trial.outcomes["fc-off"] = failing()
    trial.set("n1", "Unknown")
    trial.run(6)
    trial.set("n1", "True")
    trial.run(2)
    trial.set("n1", "Unknown")
    trial.run(200)
    assert OFF not in trial.calls


def test_a_boot_id_that_is_lost_is_not_a_restart() -> None:
    trial = Trial(settings=SETTINGS)
    trial.set("n1", "Unknown")
    trial.run(10)
    assert trial.released == ["n1"]  # after the storage fence
    trial.set("n1", "True")
    boot(trial, "")
    trial.run(60)
    assert trial.state() == "Recovery/New"
    boot(trial, "boot 2")
    trial.run(5)
    assert trial.state() == "Recovery/Final"


def test_a_flow_waits_while_its_configuration_is_away() -> None:
    trial = Trial(settings=SETTINGS)
    configured = trial.configured
    trial.set("n1", "Unknown")
    trial.run(10)
    trial.configured = Configurations((), {}, settings=SETTINGS)
    trial.run(300)
    assert trial.state() == "Isolation/Done"
    (plan,) = trial.plans().values()
    assert "kubeletx remedy stop n1" in str(plan.decision)
    trial.configured = configured
    trial.run(5)
    assert trial.state() == "Power-Management/Done"
