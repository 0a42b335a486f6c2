"""Drain of the node: operations of users and installs wait for it, within limits."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from kubeletx.health.drain import UNDER_WAY, DrainRequester, DrainState
from kubeletx.health.forecast import Situation, forecast
from kubeletx.health.topics import HEALTH_STATUS, NODE_AGENT, HealthStatus, find, path_of
from tests.unit.health.trial import Trial

DEVICEOP, UPDATE = DrainRequester.DEVICEOP, DrainRequester.UPDATE


class DrainTrial(Trial):
    """A node whose agent kubeletx can drain it."""

    word: tuple[DrainState, DrainRequester] | None = (DrainState.NOTREQUESTED, DrainRequester.NONE)
    """What the agent reports of a drain before each tick; None: it is silent."""

    def tick(self, seconds: int = 10) -> None:
        for _ in range(seconds // 10):
            if self.word is not None:
                state, requester = self.word
                drain = {"Status": state, "RequestedBy": requester}
                self.publish("kubeletx", "KubeletxStatus", "kubeletx", Drain=drain, AllPodsEnded=True)
            super().tick()

    def reports(self, state: DrainState, requester: DrainRequester = DEVICEOP) -> None:
        """Let the agent report this from now on."""
        self.word = (state, requester)
        self.tick()

    @property
    def health(self) -> HealthStatus:
        status = find(HealthStatus, path_of(self.run, HEALTH_STATUS, NODE_AGENT))
        assert status is not None
        return status

    @property
    def begins(self) -> bool:
        """An operation is under way."""
        return self.status.device_reboot


@pytest.fixture
def node(tmp_path: Path) -> DrainTrial:
    node = DrainTrial(tmp_path)
    node.tick(20)
    return node


def test_a_reboot_waits_until_the_node_is_drained(node: DrainTrial) -> None:
    assert node.health.drain_request == DrainRequester.NONE
    answer = node.order("reboot")
    assert (answer.outcome, "asked to drain" in answer.message) == ("deferred", True)
    node.tick()
    assert (node.health.drain_request, node.begins) == (DEVICEOP, False)
    for state in sorted(UNDER_WAY):
        node.reports(state)
        assert node.health.operation_held_by == f"the node is being drained: {state.name}"
        assert (node.status.wait_drain_in_progress, node.begins) == (True, False)
    node.reports(DrainState.COMPLETE)
    assert (node.status.wait_drain_in_progress, node.begins) == (False, True)
    node.until_reboot()
    assert [line["bootReason"] for line in node.reboots] == ["RebootCmd"]


@pytest.mark.parametrize("failure", [DrainState.FAILEDCORDON, DrainState.FAILEDDRAIN])
def test_a_failed_drain_holds_a_reboot_until_the_next_order(node: DrainTrial, failure: DrainState) -> None:
    node.order("reboot")
    node.reports(DrainState.STARTING)
    node.reports(failure)
    assert failure.name in node.health.operation_held_by
    assert (node.health.drain_request, node.status.wait_drain_in_progress) == (DrainRequester.NONE, True)
    node.reports(DrainState.NOTREQUESTED)
    node.tick(1000)
    assert not node.begins
    node.order("reboot")
    node.tick()
    assert node.health.drain_request == DEVICEOP
    node.reports(DrainState.COMPLETE)
    assert node.begins


def test_an_agent_that_cannot_drain_holds_nothing(node: DrainTrial) -> None:
    node.reports(DrainState.NOTSUPPORTED)
    assert node.order("reboot").outcome == "accepted"
    node.tick()
    assert node.begins


@pytest.mark.parametrize(
    ("state", "repeats", "limit"),
    [
        (DrainState.NOTREQUESTED, True, 300),  # it never begins
        (DrainState.STARTING, False, 300),  # it is silent
        (DrainState.STARTING, True, 3600),  # it does not come to an end
    ],
)
def test_a_drain_is_waited_for_within_limits(
    node: DrainTrial, state: DrainState, repeats: bool, limit: int
) -> None:
    node.order("config", values={"kubernetes.drain.timeout": "1"})
    node.order("reboot")
    node.reports(state)
    if not repeats:
        node.word = None
    node.tick(limit - 20)
    assert not node.begins
    node.tick(30)
    assert node.begins


def test_an_install_waits_for_its_drain_and_stays_drained(node: DrainTrial) -> None:
    assert node.order("install", "IMGB").outcome == "deferred"
    node.reports(DrainState.STARTING, UPDATE)
    assert (node.health.drain_request, node.states[1]) == (UPDATE, "unused")
    assert not node.status.wait_drain_in_progress
    node.start()
    node.reports(DrainState.COMPLETE, UPDATE)
    assert (node.health.drain_request, node.states[1]) == (UPDATE, "updating")
    node.until_reboot()
    assert [line["bootReason"] for line in node.reboots] == ["Update"]


def test_an_install_that_waits_is_cancelled(node: DrainTrial) -> None:
    node.order("install", "IMGB")
    node.tick()
    assert node.order("cancel", "IMGB").outcome == "accepted"
    node.tick(20)
    assert node.health.drain_request == DrainRequester.NONE
    node.reports(DrainState.COMPLETE, UPDATE)
    assert node.states == ("active", "unused", "IMGA")


@pytest.mark.parametrize(
    ("status", "requester", "waits"), [(3, UPDATE, False), (4, DEVICEOP, True), (9, DEVICEOP, False)]
)
def test_another_agents_drain_is_waited_for(
    tmp_path: Path, status: int, requester: DrainRequester, waits: bool
) -> None:
    node = Trial(tmp_path)
    node.publish("zedkube", "NodeDrainStatus", "global", Status=status, RequestedBy=requester)
    node.tick()
    node.order("reboot")
    node.tick(20)
    assert (node.status.wait_drain_in_progress, not node.status.device_reboot) == (waits, waits)


def test_a_fallback_waits_for_no_drain(tmp_path: Path) -> None:
    node = DrainTrial(tmp_path)
    node.set_slots("active", "inprogress", "IMGB")
    node.tick(20)
    node.order("mark-failed")
    node.until_reboot()
    assert [line["bootReason"] for line in node.reboots] == ["Fallback"]


def test_the_plan_knows_the_limits_of_a_drain(node: DrainTrial) -> None:
    node.order("reboot")
    node.tick()
    end = forecast(msgspec.json.decode(node.order("plan").message, type=Situation), repeats=True)[-1]
    node.tick(end.in_seconds - 10)
    assert node.reboots == []
    node.tick()
    assert len(node.reboots) == 1


def test_a_command_that_comes_while_the_node_is_cordoned_waits_for_the_drain(node: DrainTrial) -> None:
    """Defect 8."""
    node.reports(DrainState.CORDONED)
    node.publish("zedagent", "ZedAgentStatus", "zedagent", RebootCmd=True, RequestedRebootReason="new")
    node.is_reached = False
    node.tick(60)
    assert (node.begins, node.health.operation_held_by) == (False, "the node is being drained: CORDONED")
    node.reports(DrainState.COMPLETE)
    assert node.begins
