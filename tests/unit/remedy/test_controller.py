"""The controller's loop: what it does not do twice, what it does after a loss of its lock, and rubbish in records."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import Unavailable
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference
from kubeletx.remedy.fences import FenceRecords
from kubeletx.remedy.model import (
    FenceFlow,
    FenceOperation,
    FenceProof,
    MethodResult,
    NodeFence,
    RemedyOutcome,
    RemedyTask,
)
from kubeletx.remedy.policy import NOTE
from kubeletx.testing import FakeClock
from tests.unit.remedy.desk import SETTINGS, Desk

OFF = RemedyOutcome(result=MethodResult.DONE, proofs=(FenceProof.POWER,))
UNKNOWN = RemedyOutcome(result=MethodResult.UNKNOWN, message="no answer")


async def test_a_waiting_flow_is_looked_at_twice_a_second() -> None:
    desk = Desk()
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(10)
        before = desk.looks
        await desk.clock.run_for(5)
    assert desk.looks - before <= 25  # each look asks twice for the configuration


async def test_only_so_many_agents_run_at_once_and_begun_steps_go_first() -> None:
    desk = Desk(settings=replace(SETTINGS, max_agents=2, max_unhealthy="80%"))
    running: list[str] = []

    async def switch(task: RemedyTask) -> RemedyOutcome:
        running.append(task.node.name)
        assert len(running) <= 2
        await desk.clock.sleep(5)
        running.remove(task.node.name)
        return OFF

    desk.scripts |= dict.fromkeys(("fc-off", "pdu-off", "pdu-on"), switch)
    for name in ("n1", "n2", "n3", "n4"):
        desk.set(name, "Unknown")
    async with desk.leading():
        await desk.clock.run_for(120)
    power = [call for call in desk.calls if "pdu" in call]
    assert len(power) == 8
    assert power.index("n1/pdu-on") < power.index("n4/pdu-off")


@pytest.mark.parametrize(
    "flow",
    [
        {"status": "rubbish"},
        {"status": "Running", "proofs": ("magic",)},
        {"status": "Running", "remedy": -1},
        {"status": "New", "before": "Nowhere"},
        {"status": "Running", "operation": FenceOperation(id="1", method=-1)},
    ],
)
async def test_a_record_with_rubbish_stops_its_own_node_only(flow: dict[str, Any]) -> None:
    desk = Desk()
    meta = ObjectMeta(name="node-fence-n1", uid="by hand")
    desk.api.edit(NodeFence(metadata=meta, node="n1", flow=FenceFlow(node_uid="uid of n1", **flow)))
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(10)
        desk.set("n1", "True")
        desk.set("n2", "Unknown")
        await desk.clock.run_for(60)
    assert {call.split("/")[0] for call in desk.calls} == {"n2"}
    assert "correct it, or delete it" in desk.fence("n1").problem


async def test_a_record_that_cannot_be_decoded_is_not_written_over() -> None:
    desk = Desk()
    meta = ObjectMeta(name="node-fence-n1", uid="by hand")
    desk.watch.fences.replace([], [meta])
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(60)
    assert (desk.calls, desk.api.fences) == ([], {})


async def test_events_about_a_node_that_is_gone_are_forgotten() -> None:
    desk = Desk()
    for name in ("n1", "n2", "n3", "no-node"):
        meta, node = ObjectMeta(uid=name), ObjectReference(kind="Node", name=name)
        event = Event(metadata=meta, involved_object=node, reason="Oops", last_timestamp=desk.clock.now())
        desk.watch.events.put(event)
    desk.watch.nodes.undecodable(ObjectMeta(name="n2"), "")
    async with desk.leading():
        for name in ("n1", "n2"):
            desk.watch.nodes.drop(desk.watch.nodes.items[name])
        await desk.clock.run_for(1)
    assert desk.watch.events.times.keys() == {("n2", "Oops"), ("n3", "Oops")}


async def test_a_record_of_another_name_is_not_taken_for_the_nodes_own() -> None:
    desk = Desk()
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(10)
        desk.api.edit(NodeFence(metadata=ObjectMeta(name="node-fence-n2", uid="by hand"), node="n1"))
        await desk.clock.run_for(30)
    assert desk.state("n1") == "Power-Management/Done"


async def test_a_flow_of_a_node_that_cannot_be_decoded_is_kept() -> None:
    desk = Desk()
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(10)
        others = [node for name, node in desk.watch.nodes.items.items() if name != "n1"]
        del desk.watch.nodes.items["n1"]  # as for a controller that has just started
        desk.watch.nodes.replace(others, [ObjectMeta(name="n1", uid="uid of n1")])
        await desk.clock.run_for(30)
    assert desk.state("n1") == "Isolation/Done"


async def test_a_controller_that_leads_again_waits_for_the_agent_of_its_former_term() -> None:
    desk = Desk()
    hangs = asyncio.Event()

    async def off(_task: RemedyTask) -> RemedyOutcome:
        await hangs.wait()
        return OFF

    desk.scripts["pdu-off"] = off
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(40)
        assert desk.calls[-1] == "n1/pdu-off"
    hangs.set()
    async with desk.leading():
        await desk.clock.run_for(100)
        assert desk.calls[-1] == "n1/pdu-off"
        await desk.clock.run_for(200)
        assert "n1/pdu-off?" in desk.calls


async def test_a_method_is_not_repeated_after_its_controller_has_recorded_the_end() -> None:
    desk = Desk()
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(10)
    fence = desk.fence()
    operation = FenceOperation(id="of another controller", name="pdu-off", rest=60.0)
    flow = replace(fence.flow, status="Running", operation=operation)
    running = desk.api.edit(replace(fence, step="Power-Management", flow=flow))
    async with desk.leading(desk.new_controller()):
        await desk.clock.run_for(30)
        flow = replace(running.flow, operation=None, method=2, proofs=("power",), released=True)
        desk.api.edit(replace(running, flow=flow))
        await desk.clock.run_for(60)
    assert not [call for call in desk.calls if "pdu" in call]


async def test_a_node_that_is_well_after_an_unknown_result_is_not_switched_off() -> None:
    desk = Desk()

    async def off(_task: RemedyTask) -> RemedyOutcome:
        return UNKNOWN

    desk.scripts["pdu-off"] = off
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(32)
        assert desk.state() == "Power-Management/Error"
        desk.set("n1", "True")
        await desk.clock.run_for(60)
    assert [call for call in desk.calls if "pdu" in call] == ["n1/pdu-off"]
    assert desk.state() == "Recovery/Final"


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_node_that_comes_back_while_the_intent_is_written_is_not_switched_off(is_seen: bool) -> None:
    desk = Desk()

    def stored(fence: NodeFence) -> None:
        if fence.flow.operation is not None and fence.flow.operation.name == "pdu-off":
            desk.set("n1", "True", is_seen=is_seen)

    desk.api.stored = stored
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(60)
    assert [call for call in desk.calls if "pdu" in call] == []
    assert desk.state() == "Recovery/Final"


@pytest.mark.parametrize("faults", [1, 2])
async def test_a_node_that_cannot_be_read_is_switched_off_by_the_next_try(faults: int) -> None:
    desk = Desk()
    desk.node_faults = [Unavailable("the API server does not answer")] * faults
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(26)
        assert [call for call in desk.calls if "pdu" in call] == []
        await desk.clock.run_for(10)
    assert [call for call in desk.calls if "pdu" in call] == ["n1/pdu-off", "n1/pdu-on"]


async def test_an_outcome_whose_record_fails_is_recorded_later_and_nothing_is_asked_again() -> None:
    desk = Desk()

    async def off(_task: RemedyTask) -> RemedyOutcome:
        desk.watch.problem = "the API server does not answer"
        desk.leads = False
        return OFF

    desk.scripts["pdu-off"] = off
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(40)
        desk.watch.problem, desk.leads = "", True
        desk.watch.changed.set()
        await desk.clock.run_for(10)
    assert [call for call in desk.calls if "pdu-off" in call] == ["n1/pdu-off"]
    assert desk.state() == "Power-Management/Done"


async def test_an_intent_whose_write_has_no_answer_is_carried_out_once() -> None:
    desk = Desk()
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(20)
        desk.api.faults = [Unavailable("no answer")] * 3
        await desk.clock.run_for(40)
    assert sum("pdu-off" in call for call in desk.calls) == 1


async def test_an_action_that_raises_has_an_unknown_result() -> None:
    desk = Desk()

    async def off(_task: RemedyTask) -> RemedyOutcome:
        raise ValueError("a fault of a plugin")

    desk.scripts["pdu-off"] = off
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(32)
    assert desk.state() == "Power-Management/Error"
    assert "a fault of a plugin" in desk.fence().history[-1].message


async def test_what_a_flow_had_set_is_removed_although_its_record_was_deleted() -> None:
    desk = Desk()
    desk.annotate("n1", NOTE, "cordon")
    async with desk.leading():
        await desk.clock.run_for(40)
    assert desk.state() == "Recovery/Final"
    assert desk.calls[0] == "n1/restore"


async def test_the_copy_of_the_status_is_made_good_after_a_kill() -> None:
    desk = Desk()
    meta = ObjectMeta(name="node-fence-n1", uid="of a flow")
    flow = FenceFlow(node_uid="uid of n1", status="Final")
    desk.api.edit(NodeFence(metadata=meta, node="n1", step="Recovery", status="Running", flow=flow))
    async with desk.leading():
        await desk.clock.run_for(2)
    assert desk.fence().status == "Final"


async def test_the_definition_is_installed_once_the_api_server_is_back() -> None:
    tries = []

    async def create(*_: object) -> object:
        tries.append(1)
        if len(tries) < 3:
            raise Unavailable("the API server is away")
        established = SimpleNamespace(status="True")
        return SimpleNamespace(metadata=ObjectMeta(), condition=lambda _type: established)

    client: Any = SimpleNamespace(create=create)
    await FenceRecords(client, FakeClock(auto_advance=True)).install()
    assert len(tries) == 3
