"""The agent beside a guardian: its topic, the end of its pods before a reboot, and conditions of the node."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubeletx.agent.assembly import assemble
from kubeletx.health.client import touch
from kubeletx.health.model import Effect
from kubeletx.health.topics import KubeletxStatus
from kubeletx.health.watchdog.agents import AgentWatch
from kubeletx.health.watchdog.ages import WatchedAgent
from kubeletx.pods import PodManager
from kubeletx.server.backend import AdminBackend
from tests.unit.agent.agent_model import AgentModel, a_pod


class EdgeRun:
    """RUN of an edge node: topics of the guardian and of the agent."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def publish(self, topic: str, **fields: object) -> None:
        """Write a topic of the guardian as it does."""
        path = self.path / "nodeagent" / topic / "nodeagent.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(fields))
        new.replace(path)

    def tick(self, number: int) -> None:
        """Write the file that the guardian writes at each tick."""
        path = self.path / "kubeletx-health" / "state"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        os.utime(path, ns=(number, number))

    @property
    def status(self) -> KubeletxStatus:
        data = (self.path / "kubeletx" / "KubeletxStatus" / "kubeletx.json").read_bytes()
        return msgspec.json.decode(data, type=KubeletxStatus)


@pytest.fixture
def edge(agent: AgentModel, tmp_path: Path) -> EdgeRun:
    agent.configure("edge", run_dir=tmp_path / "run")
    return EdgeRun(tmp_path / "run")


async def conditions(backend: AdminBackend) -> dict[str, tuple[str, Any, Any]]:
    """Status, reason and message of the guardian's conditions."""
    found = (await backend.node.get_node()).status.conditions
    return {
        c.type.removeprefix("kubeletx.io/"): (c.status, c.reason, c.message)
        for c in found
        if c.type.endswith(("EdgeHealthy", "UpgradeTesting", "MaintenanceMode"))
    }


async def test_pods_end_before_the_guardian_reboots_and_the_agent_says_so(
    agent: AgentModel, edge: EdgeRun
) -> None:
    async with agent.running() as backend:
        await agent.apply(a_pod("web"))
        assert not edge.status.is_ending
        edge.publish("NodeAgentStatus", DeviceReboot=True)
        await agent.until(lambda: edge.status.all_pods_ended)
        assert agent.alive() == []
        ready = (await backend.node.get_node()).status.conditions[-1]
        assert (ready.status, "node is shutting down" in (ready.message or "")) == ("False", True)
        edge.publish("NodeAgentStatus", DeviceReboot=False)
        await agent.until(lambda: not edge.status.is_ending)
        assert not edge.status.all_pods_ended
        await agent.apply(a_pod("next"))


@pytest.mark.parametrize("flag", ["DeviceShutdown", "DevicePoweroff"])
async def test_an_agent_that_starts_during_an_operation_ends_its_pods(
    agent: AgentModel, edge: EdgeRun, flag: str
) -> None:
    async with agent.running():
        await agent.apply(a_pod("web"))
    edge.publish("NodeAgentStatus", **{flag: True})
    async with agent.running():
        await agent.until(lambda: edge.status.all_pods_ended and agent.alive() == [])


async def test_the_agent_reports_what_is_not_ready_and_shows_that_it_lives(
    agent: AgentModel, edge: EdgeRun
) -> None:
    async with agent.running():
        assert (edge.status.contact, edge.status.contact_source) == (0, "")
        registered = edge.path / "watchdog" / "file" / "kubeletx.touch"
        assert registered.exists()
        sign = (edge.path / "kubeletx.touch").stat().st_mtime_ns
        await agent.until(lambda: (edge.path / "kubeletx.touch").stat().st_mtime_ns > sign)
        await agent.until(lambda: edge.status.runtimes_not_ready == ())
        agent.runtimes["two"].runtime_ready = False
        await agent.until(lambda: edge.status.runtimes_not_ready == ("two",))
        await agent.parts.backend.pods.apply_pod(a_pod("held", runtime="two"))
        await agent.until(lambda: edge.status.pods_not_ready == ("default/held",))
    assert not registered.exists()


async def test_users_see_what_the_guardian_published(agent: AgentModel, edge: EdgeRun) -> None:
    async with agent.running() as backend:
        empty = msgspec.to_builtins(backend.edge())
        assert empty == {"health": None, "node": None, "slots": (), "silence": ""}
        boot = {
            "Reason": "PowerFail: the power was cut",
            "Time": "2026-11-28T18:00:00+00:00",
            "Image": "IMGA",
        }
        edge.publish("HealthStatus", Phase="Testing", RemainingTestTime=590, Boots=[boot])
        edge.publish("NodeAgentStatus", CurPart="IMGB", RebootReason="update to 2")
        slots = edge.path / "baseosmgr" / "ZbootStatus"
        slots.mkdir(parents=True)
        (slots / "IMGB.json").write_text(json.dumps({"PartitionLabel": "IMGB", "ShortVersion": "2"}))

        def view() -> Any:
            return msgspec.to_builtins(backend.edge())

        await agent.until(lambda: view()["slots"] and view()["node"] and view()["health"])
        assert view()["health"]["RemainingTestTime"] == 590
        assert view()["health"]["Boots"] == (boot,)
        assert view()["node"]["RebootReason"] == "update to 2"
        assert [slot["ShortVersion"] for slot in view()["slots"]] == ["2"]
        (slots / "IMGB.json").unlink()
        await agent.until(lambda: not view()["slots"])


async def test_the_verdict_of_the_guardian_becomes_conditions_of_the_node(
    agent: AgentModel, edge: EdgeRun
) -> None:
    async with agent.running() as backend:
        silent = ("Unknown", "GuardianSilent", "the guardian has not published its status")
        assert set((await conditions(backend)).values()) == {silent}
        disk = {"Name": "disk", "Level": "required", "Ok": False, "Message": "/var has 1% free"}
        led = {"Name": "led", "Level": "wanted", "Ok": False}
        edge.publish(
            "HealthStatus",
            Phase="Testing",
            RemainingTestTime=590,
            HeldBy="the controller is away",
            IsHealthy=False,
            Checks=[led, disk],
            MaintenanceMode=True,
            MaintenanceReasons=["NoDiskSpace", "UserRequested"],
        )
        await agent.clock.run_for(2)
        assert await conditions(backend) == {
            "EdgeHealthy": (
                "False",
                "ChecksFail",
                "disk (required): /var has 1% free; led (wanted): failed",
            ),
            "UpgradeTesting": (
                "True",
                "Testing",
                "590 s of the test window remain; it does not count now: the controller is away",
            ),
            "MaintenanceMode": ("True", "Maintenance", "NoDiskSpace, UserRequested"),
        }
        assert await agent.metric("kubeletx_edge_check") == {"led,wanted": 0, "disk,required": 0}
        assert await agent.metric("kubeletx_edge_test_seconds") == {"": 590}
        edge.publish("HealthStatus")
        await agent.clock.run_for(2)
        assert await conditions(backend) == {
            "EdgeHealthy": ("True", "ChecksPass", ""),
            "UpgradeTesting": ("False", "Normal", ""),
            "MaintenanceMode": ("False", "NoMaintenance", ""),
        }
        events = [e for e in await backend.node.list_events() if e.reason == "EdgeHealthChanged"]
        assert {(e.type, e.message) for e in events} == {
            ("Normal", "kubeletx.io/EdgeHealthy is now True (ChecksPass)"),
            ("Normal", "kubeletx.io/UpgradeTesting is now False (Normal)"),
            ("Normal", "kubeletx.io/MaintenanceMode is now False (NoMaintenance)"),
        }


async def test_the_verdict_of_a_guardian_that_does_not_tick_is_unknown(
    agent: AgentModel, edge: EdgeRun
) -> None:
    async with agent.running() as backend:
        edge.publish("HealthStatus")
        edge.tick(1)
        await agent.clock.run_for(55)
        edge.tick(2)
        await agent.clock.run_for(55)
        assert (await conditions(backend))["EdgeHealthy"][0] == "True"
        await agent.clock.run_for(10)
        silent = ("Unknown", "GuardianSilent", "the guardian has not ticked for 60 s")
        assert set((await conditions(backend)).values()) == {silent}
        edge.tick(3)
        await agent.clock.run_for(2)
        assert (await conditions(backend))["EdgeHealthy"][0] == "True"


async def test_rubbish_in_a_topic_changes_nothing(agent: AgentModel, edge: EdgeRun) -> None:
    async with agent.running():
        await agent.apply(a_pod("web"))
        edge.publish("HealthStatus", Phase=5)
        edge.publish("NodeAgentStatus", DeviceReboot="perhaps")
        await agent.clock.run_for(30)
        assert agent.alive() == ["web"]


@pytest.mark.parametrize("is_registered", [True, False])
async def test_a_long_start_after_a_crash_does_not_make_the_guardian_restart_the_agent(
    agent: AgentModel, edge: EdgeRun, monkeypatch: pytest.MonkeyPatch, is_registered: bool
) -> None:
    if is_registered:
        touch("kubeletx", edge.path)  # by a process that was killed since
    recover, began = PodManager.recover, asyncio.Event()

    async def recover_slowly(manager: PodManager) -> int:
        began.set()
        await agent.clock.sleep(200)
        return await recover(manager)

    monkeypatch.setattr(PodManager, "recover", recover_slowly)
    limits = {"error": 90, "hit": 120, "unit": "kubeletx.service"}
    watch = AgentWatch(edge.path, edge.path, {"agents": {"kubeletx": limits}}, lambda *_: None)
    watched: dict[str, WatchedAgent] = {}
    effects: list[Effect] = []
    async with assemble(agent.config, plugins=agent.plugins, clock=agent.clock, host=agent.host) as parts:
        life = asyncio.create_task(parts.run())
        async with asyncio.timeout(60):
            await began.wait()
        for second in range(0, 200, 10):
            watched, new = watch.tick(watched, second, is_busy=False)
            effects += new
            assert bool(watched) == is_registered
            await agent.clock.run_for(10)
        await agent.until((edge.path / "kubeletx" / "KubeletxStatus").exists)
        assert not life.done()
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)
    assert effects == []
