"""Critical pods get room: others end, the room is kept for them, and they start once it is free (S8, A7)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid
from kubeletx.kube.types.core import Container, Pod, PodStatus, ResourceRequirements
from kubeletx.pods.admission import NodeAdmission
from kubeletx.pods.manager import PodManager
from kubeletx.pods.model.priority import CRITICAL_PRIORITY
from kubeletx.pods.model.sources import API, APPLIED, FILE
from kubeletx.testing import Script
from tests.unit.pods.manager_model import Node, a_pod

ONE_CPU = {"cpu": 1000}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path, "one", "two")


def asking(
    name: str, cpu: str = "", *, is_critical: bool = False, runtime: str = "", priority: int | None = None
) -> Pod:
    resources = ResourceRequirements(requests={"cpu": cpu} if cpu else {})
    pod = a_pod(name, runtime=runtime, priority=CRITICAL_PRIORITY if is_critical else priority)
    container = Container(name="c0", image="busybox", resources=resources)
    return replace(pod, spec=replace(pod.spec, containers=(container,)))


def status(node: Node, name: str) -> PodStatus:
    return node.services.board.statuses.get(PodUid(f"uid-{name}"), PodStatus())


async def wait_for_victim(node: Node, manager: PodManager, name: str) -> Script:
    """This critical pod waits for the end of another one, which comes when what is returned is released."""
    await node.start(asking("victim", "900m"), API)
    stuck = node.runtimes["one"].script("stop_unit", hang=True)
    manager.update(API, asking(name, "900m", is_critical=True))
    await node.until(lambda: status(node, name).reason == "Preempting")
    return stuck


async def test_a_critical_pod_ends_the_least_and_starts_when_its_room_is_free(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        for name, cpu in (("idle", ""), ("small", "200m"), ("large", "700m")):
            await node.start(asking(name, cpu), API)
        stuck = node.runtimes["one"].script("stop_unit", hang=True)
        manager.update(API, asking("critical", "800m", is_critical=True))
        await node.until(lambda: status(node, "critical").reason == "Preempting")
        assert status(node, "critical").phase == "Pending"
        assert status(node, "critical").message == "waits for cpu until these have ended: default/large"
        await node.clock.run_for(5)
        assert "critical/c0" not in node.alive()
        stuck.release()
        await node.until(lambda: node.phase("uid-critical") == "Running")
        assert node.alive() == ["critical/c0", "idle/c0", "small/c0"]
        ended = status(node, "large")
        assert (ended.phase, ended.reason) == ("Failed", "Preempting")
        assert ended.message == "Preempted in order to admit critical pod"
        target = next(one for one in ended.conditions if one.type == "DisruptionTarget")
        assert (target.status, target.reason) == ("True", "TerminationByKubelet")
        assert target.message == "Pod was preempted by Kubelet to accommodate a critical pod."
        reported = [one for one in node.sink.recorded if one.reason == "Preempting"]
        assert [(one.ref.name, one.type, one.message) for one in reported] == [
            ("large", "Warning", "Preempted in order to admit critical pod")
        ]
        assert node.services.counters.preemptions == {"cpu": 1}


async def test_a_static_pod_is_critical_whatever_its_priority(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        await node.start(asking("applied", "700m"), APPLIED)
        manager.update(FILE, asking("static", "700m"))
        await node.until(lambda: node.phase("uid-static") == "Running")
        assert status(node, "applied").reason == "Preempting"


async def test_its_room_is_not_given_to_a_pod_that_comes_meanwhile(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        stuck = await wait_for_victim(node, manager, "critical")
        manager.update(API, asking("late", "500m"))
        await node.until(lambda: status(node, "late").reason == "OutOfcpu")
        stuck.release()
        await node.until(lambda: node.phase("uid-critical") == "Running")


async def test_a_critical_pod_that_is_deleted_while_it_waits_gives_its_room_back(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        stuck = await wait_for_victim(node, manager, "critical")
        manager.remove(API, PodUid("uid-critical"))
        await node.until(lambda: PodUid("uid-critical") not in manager.workers)
        stuck.release()
        await node.until(lambda: node.phase("uid-victim") == "Failed")
        await node.start(asking("next", "900m"), API)


async def test_two_critical_pods_end_one_pod_each_and_both_start(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        for name in ("first", "second"):
            await node.start(asking(name, "500m"), API)
        for name in ("c1", "c2"):
            manager.update(API, asking(name, "500m", is_critical=True))
        await node.until(lambda: node.alive() == ["c1/c0", "c2/c0"])
        assert node.sink.reasons().count("Preempting") == 2


async def test_a_pod_that_ends_anyway_is_waited_for_instead(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        await node.start(asking("going", "500m"), API)
        await node.start(asking("staying", "500m"), API)
        stuck = node.runtimes["one"].script("stop_unit", hang=True)
        manager.remove(API, PodUid("uid-going"))
        await node.clock.run_for(0.1)
        manager.update(API, asking("critical", "500m", is_critical=True))
        await node.until(lambda: status(node, "critical").reason == "Preempting")
        stuck.release()
        await node.until(lambda: node.phase("uid-critical") == "Running")
        assert node.phase("uid-staying") == "Running"
        assert "Preempting" not in node.sink.reasons()


ELSEWHERE = asking("critical", "900m", is_critical=True)
ELSEWHERE = replace(ELSEWHERE, spec=replace(ELSEWHERE.spec, node_selector={"disk": "ssd"}))


@pytest.mark.parametrize(
    ("critical", "reason"),
    [
        (asking("critical", "1100m", is_critical=True), "UnexpectedAdmissionError"),
        (a_pod("critical", priority=CRITICAL_PRIORITY, node_selector={"disk": "ssd"}), "NodeAffinity"),
        (ELSEWHERE, "NodeAffinity"),
        (asking("critical", "900m"), "OutOfcpu"),
        (asking("critical", "900m", priority=CRITICAL_PRIORITY - 1), "OutOfcpu"),
    ],
    ids=[
        "never fits",
        "lacks something else",
        "lacks room and something else",
        "is not critical",
        "is nearly critical",
    ],
)
async def test_no_one_ends_for_a_pod_that(node: Node, critical: Pod, reason: str) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        await node.start(asking("victim", "900m"), API)
        manager.update(API, critical)
        await node.until(lambda: status(node, "critical").reason == reason)
        assert node.phase("uid-victim") == "Running"


async def test_static_and_critical_pods_and_those_out_of_reach_are_never_ended(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        await node.start(asking("static", "300m"), FILE)
        await node.start(asking("other", "300m", is_critical=True), API)
        await node.start(asking("away", "300m", runtime="two"), API)
        node.runtimes["two"].backend.kill()
        await node.until(lambda: not node.registry.get("two").state.reachable)
        manager.update(API, asking("critical", "500m", is_critical=True))
        await node.until(lambda: status(node, "critical").reason == "UnexpectedAdmissionError")
        assert status(node, "critical").phase == "Failed"
        assert "still be missing: cpu: 400m;" in (status(node, "critical").message or "")
        assert "Preempting" not in node.sink.reasons()


async def test_a_critical_pod_ends_for_one_of_higher_priority_and_a_static_one_does_not(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        await node.start(asking("static", "400m"), FILE)
        await node.start(asking("cluster", "400m", is_critical=True), API)
        await node.start(asking("user", "200m"), API)
        manager.update(API, asking("node", "500m", priority=CRITICAL_PRIORITY + 1000))
        await node.until(lambda: node.phase("uid-node") == "Running")
        assert node.alive() == ["node/c0", "static/c0"]
        assert status(node, "cluster").reason == "Preempting"


async def test_a_critical_pod_that_still_waits_for_room_ends_for_one_of_higher_priority(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        stuck = await wait_for_victim(node, manager, "cluster")
        assert status(node, "cluster").phase == "Pending"
        manager.update(API, asking("node", "900m", priority=CRITICAL_PRIORITY + 1000))
        await node.until(lambda: status(node, "cluster").phase == "Failed")
        assert status(node, "cluster").reason == "Preempting"
        stuck.release()
        await node.until(lambda: node.phase("uid-node") == "Running")
        assert node.alive() == ["node/c0"]


async def test_a_pod_that_ends_while_the_nodes_labels_are_asked_for_takes_nothing(node: Node) -> None:
    async with node.running(allocatable=ONE_CPU) as manager:
        admission = node.services.admission
        assert isinstance(admission, NodeAdmission)
        asked, answered = asyncio.Event(), asyncio.Event()

        async def look() -> None:
            asked.set()
            await answered.wait()
            admission.relabel({"disk": "ssd"})

        admission.follow(look)
        pod = asking("placed", "900m")
        manager.update(API, replace(pod, spec=replace(pod.spec, node_selector={"disk": "ssd"})))
        await node.until(asked.is_set)
        assert manager.active.end(
            pod.uid, grace_seconds=1, reason="Terminated", message="the node shuts down"
        )
        await node.until(lambda: node.phase("uid-placed") == "Failed")
        answered.set()
        ended = manager.workers[pod.uid]
        await node.until(lambda: "bind" not in ended.facts.in_flight)
        assert ended.facts.runtime is None
        await node.start(asking("next", "900m"), API)
