"""Verbs of an administrator, against the API server's double, and what the planner makes of them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import NotFound, SystemClock
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.remedy.decisions import Change
from kubeletx.remedy.fences import FenceRecords
from kubeletx.remedy.main import parse
from kubeletx.remedy.model import (
    FenceFlow,
    FenceProof,
    FlowStatus,
    FlowStep,
    MethodResult,
    NodeFence,
    RemedyOutcome,
    RemedyTask,
)
from kubeletx.remedy.planner import CONFIRMED
from kubeletx.remedy.policy import PAUSE
from kubeletx_testing.apiserver import ApiServerDouble, StatusError

from .desk import Desk
from .test_kdump import KDUMP
from .trial import READY_FENCE, Trial, failing

NAMESPACE = "kube-system"


class Cluster:
    """A double with node ``n1``, and the command line that talks to it."""

    def __init__(self, api: ApiServerDouble, client: KubeClient, capsys: pytest.CaptureFixture[str]) -> None:
        self.api, self._capsys = api, capsys
        self.records = FenceRecords(client, SystemClock())

    async def run(self, *words: str) -> str:
        """Run a verb and return what it prints."""
        options = parse([words[0], f"--kubeconfig={self.api.admin_kubeconfig()}", *words[1:]])
        assert await options.command(options) == 0
        return self._capsys.readouterr().out

    async def add_flow(self, step: FlowStep, status: FlowStatus, node: str = "n1", **flow: Any) -> NodeFence:
        flow = {"node_uid": f"uid of {node}", "reasons": ("Ready=False",), **flow}
        made = NodeFence(node=node, step=step.value, flow=FenceFlow(status=status.value, **flow))
        return await self.records.write(Change(made, "the node is sick"), is_new_flow=True)

    def annotations(self) -> dict[str, str]:
        found: dict[str, str] = self.api.admin.get("nodes", "n1")["metadata"].get("annotations") or {}
        return found


@pytest.fixture
async def cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Cluster]:
    with ApiServerDouble(tmp_path / "api") as api:
        api.admin.create("nodes", {"metadata": {"name": "n1"}})
        client = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=SystemClock())
        made = Cluster(api, client, capsys)
        await made.records.install()
        yield made
        await client.close()


# --- the command line ---


async def test_pause_and_resume_of_a_node_are_an_annotation(cluster: Cluster) -> None:
    assert "n1 is paused" in await cluster.run("pause", "n1", "--reason", "new disks")
    assert cluster.annotations()[PAUSE] == "new disks"
    assert "n1 is resumed." in await cluster.run("resume", "n1")
    assert PAUSE not in cluster.annotations()


async def test_pause_of_all_nodes_is_a_config_map(cluster: Cluster) -> None:
    await cluster.run("pause", "--all", "--reason", "first")
    await cluster.run("pause", "--all", "--reason", "new switch")
    assert cluster.api.admin.get("configmaps", "remedy-pause", NAMESPACE)["data"] == {"reason": "new switch"}
    await cluster.run("resume", "--all")
    with pytest.raises(StatusError):
        cluster.api.admin.get("configmaps", "remedy-pause", NAMESPACE)
    assert "were not paused" in await cluster.run("resume", "--all")


async def test_a_stopped_flow_goes_on_when_it_is_resumed(cluster: Cluster) -> None:
    await cluster.add_flow(FlowStep.ISOLATION, FlowStatus.DONE)
    await cluster.add_flow(FlowStep.RECOVERY, FlowStatus.FINAL, node="n2")
    assert await cluster.run("stop", "--all") == "n1 is stopped; recovery begins when the node is well.\n"
    stopped = await cluster.records.read("n1")
    assert stopped.flow.stopped
    assert stopped.history[-1].message == "stopped by an administrator"
    await cluster.run("resume", "n1")
    resumed = await cluster.records.read("n1")
    assert not resumed.flow.stopped
    assert CONFIRMED not in resumed.metadata.annotations


async def test_resume_confirms_a_node_that_waits_for_its_recovery(cluster: Cluster) -> None:
    await cluster.add_flow(FlowStep.RECOVERY, FlowStatus.NEW)
    assert "confirmed to be well" in await cluster.run("resume", "n1")
    assert (await cluster.records.read("n1")).metadata.annotations == {CONFIRMED: "uid of n1"}


async def test_resume_tries_again_what_failed_for_good(cluster: Cluster) -> None:
    failed = await cluster.add_flow(FlowStep.POWER, FlowStatus.ERROR, terminal=True)
    await cluster.records.write(Change(replace(failed, retries=2), ""))
    await cluster.run("resume", "n1")
    fence = await cluster.records.read("n1")
    assert (fence.retries, fence.flow.terminal) == (0, False)


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (("pause", "n9"), 'nodes "n9" not found'),
        (("stop", "n1"), "node n1 has no flow that could be stopped"),
        (("history", "n1"), "node n1 has no record: it has had no flow"),
    ],
)
async def test_what_is_missing_is_named(cluster: Cluster, words: tuple[str, ...], printed: str) -> None:
    with pytest.raises(NotFound) as error:
        await cluster.run(*words)
    assert printed in str(error.value)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("pause",), "one of the arguments NODE --all is required"),
        (("stop", "n1", "--all"), "not allowed with argument"),
        (("history",), "the following arguments are required: NODE"),
        (("repair", "n1"), "invalid choice: 'repair'"),
        (("--leader-elect=maybe",), "'maybe' is neither true nor false"),
    ],
)
def test_wrong_arguments_are_usage_errors(
    words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(words)
    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


async def test_history_fits_eighty_columns(cluster: Cluster) -> None:
    fence = await cluster.add_flow(FlowStep.POWER, FlowStatus.ERROR, message="off failed")
    for number in range(3):
        fence = await cluster.records.write(Change(fence, f"fence_virsh: {'no answer ' * 12}{number}"))
    lines = (await cluster.run("history", "n1")).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == ["Node:         n1", "State:        Power-Management Error"]
    assert "Problems:     Ready=False x1" in lines
    read = json.loads(await cluster.run("history", "n1", "-o", "json"))
    assert len(read["history"]) == 4
    assert read["problems"] == {"Ready=False": 1}


async def test_a_plan_names_what_holds_a_node_back(cluster: Cluster) -> None:
    assert (await cluster.run("plan")).splitlines()[-1] == "all nodes are well"
    flow = await cluster.add_flow(FlowStep.RECOVERY, FlowStatus.NEW)
    uid = cluster.api.admin.get("nodes", "n1")["metadata"]["uid"]
    await cluster.records.write(Change(replace(flow, flow=replace(flow.flow, node_uid=uid)), ""))
    await cluster.run("pause", "n1", "--reason", "new disks " * 20)
    lines = (await cluster.run("plan")).splitlines()
    lines = lines[lines.index("NODE  STATE                    NEXT") :]  # after the log
    assert lines[1].startswith("n1    Recovery New             Recovery")
    assert lines[2].startswith("  - paused by an administrator (kubeletx remedy resume n1): new disks")
    assert max(map(len, lines)) <= 80


async def test_a_plan_shows_a_kernel_dump_that_the_controller_has_recorded(
    cluster: Cluster, tmp_path: Path
) -> None:
    api = cluster.api.admin
    uid = api.get("nodes", "n1")["metadata"]["uid"]
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": "Unknown", "lastTransitionTime": now}
    api.replace("nodes", {**api.get("nodes", "n1"), "status": {"conditions": [ready]}}, "status")
    maps = {"metadata": {"name": "fence-config-n1"}, "data": KDUMP}
    api.create("configmaps", maps, NAMESPACE)
    (tmp_path / "ready.yaml").write_text(READY_FENCE)
    place = {"node_uid": uid, "configuration": "ready", "threshold": "Ready=False,Unknown"}
    flow: dict[str, Any] = {**place, "dump": 12.0, "proofs": ("power",), "released_for": ("power",)}
    await cluster.add_flow(FlowStep.POWER, FlowStatus.NEW, **flow)
    printed = await cluster.run("plan", f"--config={tmp_path}/ready.yaml")
    assert "writes a kernel dump: power management in 588 s" in " ".join(printed.split())


# --- their effect ---


def test_a_stopped_flow_takes_no_step_but_its_recovery() -> None:
    trial = Trial()
    trial.set("n1", "Unknown")
    trial.run(10)
    fence = trial.fences["n1"]
    trial.fences["n1"] = replace(fence, flow=replace(fence.flow, stopped=True))
    calls = list(trial.calls)
    trial.run(3600, step=30)
    assert trial.calls == calls
    trial.set("n1", "True", reboots=True)
    trial.run(60)
    assert trial.state() == "Recovery/Final"


@pytest.mark.parametrize("where", ["node", "settings"])
def test_nothing_is_done_while_paused(where: str) -> None:
    trial = Trial()
    node, configured = trial.nodes["n1"], trial.configured
    if where == "node":
        meta = replace(node.metadata, annotations={PAUSE: ""})
        trial.nodes["n1"] = replace(node, metadata=meta)
    else:
        trial.configured.settings = replace(configured.settings, pause=True)
    trial.set("n1", "Unknown")
    trial.run(3600, step=60)
    assert (trial.fences, trial.calls) == ({}, [])


def test_a_confirmation_ends_when_the_node_is_sick_again() -> None:
    trial = Trial()
    trial.configured.settings = replace(trial.configured.settings, manual_confirmation=True)
    trial.outcomes["fc-off"] = failing()
    trial.set("n1", "Unknown")
    trial.run(400)
    trial.set("n1", "True", reboots=True)
    trial.run(10)
    fence = trial.fences["n1"]
    meta = replace(fence.metadata, annotations={CONFIRMED: "uid of n1"})
    trial.fences["n1"] = replace(fence, metadata=meta)
    trial.set("n1", "Unknown")
    trial.run(10)
    trial.set("n1", "True")
    trial.run(3600, step=60)
    assert trial.state() == "Recovery/New"
    assert not trial.fences["n1"].metadata.annotations


async def test_the_result_of_a_method_that_runs_during_a_stop_is_kept() -> None:
    desk = Desk()

    async def off(task: RemedyTask) -> RemedyOutcome:
        desk.api.edit(replace(desk.fence(), flow=replace(desk.fence().flow, stopped=True)))
        return RemedyOutcome(result=MethodResult.DONE, proofs=(FenceProof.POWER,))

    desk.scripts["pdu-off"] = off
    desk.set("n1", "Unknown")
    async with desk.leading():
        await desk.clock.run_for(120)
    assert desk.calls[-3:] == ["n1/pdu-off", "n1/release", "n1/pdu-on"]
    assert desk.state() == "Power-Management/Done"
