"""Statuses on their way to an API server: the newest counts, others' words stay, and what has ended is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from kubeletx.api import InvalidPod, PodUid, RuntimeName, SystemClock
from kubeletx.apiserver.pods import ApiPods
from kubeletx.apiserver.status.reporter import QUIET_SECONDS, StatusReporter
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import (
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Pod,
    PodCondition,
    PodIP,
    PodStatus,
    VirtualMachineStatus,
)
from kubeletx.pods.model.facts import Deletion, DesiredPod, PodFacts
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble, Rule
from kubeletx_testing.waiting import until
from tests.unit.apiserver.api_connections import connections

GUARD_SECONDS = 60
NODE = "teller"
RUNNING = PodCondition(type="Ready", status="True")


def on_its_way(pod_ip: str) -> PodStatus:
    """Of a pod whose container is being made."""
    creating = ContainerState(waiting=ContainerStateWaiting(reason="ContainerCreating"))
    container = ContainerStatus(
        name="c", image="i", image_id="", ready=False, restart_count=0, state=creating
    )
    ips = (PodIP(ip=pod_ip),)
    return PodStatus(phase="Pending", pod_ip=pod_ip, pod_ips=ips, container_statuses=(container,))


class Manager:
    """A pod manager that runs what it is told to run and ends it when a test says so."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, Pod] = {}
        self.removed: list[PodUid] = []
        self.on_update: Callable[[PodUid], object] = lambda _: None

    def update(self, source: str, pod: Pod) -> None:
        self.pods[pod.uid] = pod
        self.on_update(pod.uid)

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        self.removed.append(uid)

    def synced(self, source: str) -> None:
        """The first list is there."""

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        raise AssertionError(error)

    def valid(self, source: str, origin: str) -> None:
        raise AssertionError(origin)


class Node:
    """A reporter at work against the double."""

    def __init__(self, api: ApiServerDouble) -> None:
        self.api = api
        self.manager = Manager()
        clock = SystemClock()
        self.clock = FakeClock()
        """Of the reporter alone."""
        self.client = KubeClient(load_kubeconfig(api.node_kubeconfig(NODE)), clock=clock)
        is_here = self.manager.pods.__contains__
        self.pods = ApiPods(self.manager, is_here=is_here)
        self.reporter = StatusReporter(self.client, self.pods, clock=self.clock, is_here=is_here)
        self.reflector = Reflector(
            self.client, PODS, Pod, self.pods, clock=clock, field_selector=f"spec.nodeName={NODE}"
        )

    async def bind(self, name: str, **spec: Any) -> PodUid:
        """Make a pod and wait until the manager has it."""
        pod = {
            "metadata": {"name": name},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}], **spec},
        }
        uid = PodUid(self.api.admin.create("pods", pod, namespace="default")["metadata"]["uid"])
        await until(lambda: uid in self.manager.pods)
        return uid

    def say(self, uid: PodUid, status: PodStatus | None, deletion: Deletion | None = None) -> None:
        """What the board says of a pod; None: it has ended."""
        pod = self.manager.pods[uid]
        if status is None:
            del self.manager.pods[uid]
        desired = DesiredPod(uid=uid, pod=pod, source="api", spec_hash="", deletion=deletion)
        self.reporter.board_changed(desired, PodFacts(runtime=RuntimeName("one")), status)

    def status(self, name: str) -> dict[str, Any]:
        """As the API server has it; empty: no such pod."""
        for pod in self.api.admin.list("pods", namespace="default")["items"]:
            if pod["metadata"]["name"] == name:
                found: dict[str, Any] = pod["status"]
                return found
        return {}

    def writes(self) -> list[str]:
        """Methods of the node's requests that change something."""
        asked = self.api.requests.all(user=f"system:node:{NODE}")
        return [one.method for one in asked if one.method not in ("GET",)]


@pytest.fixture
async def node(api: ApiServerDouble) -> AsyncIterator[Node]:
    api.settings.service_account_admission = False
    api.admin.create("nodes", {"metadata": {"name": NODE}})
    one = Node(api)
    tasks = [asyncio.create_task(one.reflector.run()), asyncio.create_task(one.reporter.run())]
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            await one.reflector.synced.wait()
            yield one
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await one.client.close()
        await until(lambda: not connections(api))  # TLS says good-bye first


async def test_the_newest_status_is_reported_with_the_runtime_that_was_chosen(node: Node) -> None:
    uid = await node.bind("a")
    for number in range(20):
        node.say(uid, PodStatus(phase="Pending", message=f"step {number}"))
    node.say(uid, PodStatus(phase="Running", conditions=(RUNNING,)))
    await until(lambda: node.status("a").get("phase") == "Running")
    assert "message" not in node.status("a")
    pod = node.api.admin.get("pods", "a", namespace="default")
    assert pod["metadata"]["annotations"]["kubeletx.io/bound-runtime"] == "one"
    assert len(node.writes()) <= 3, "what came between is not sent"


async def test_a_status_that_someone_wrote_over_is_written_again(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, PodStatus(phase="Running", conditions=(RUNNING,)))
    await until(lambda: node.status("a").get("phase") == "Running")
    node.api.admin.patch("pods", "a", {"status": {"phase": "Pending"}}, "default", "status")
    await until(lambda: node.status("a").get("phase") == "Running")


async def test_what_the_api_server_does_not_keep_is_not_sent_for_ever(node: Node) -> None:
    uid = await node.bind("a")
    machine = VirtualMachineStatus(name="m", power_state="running")
    node.say(uid, PodStatus(phase="Running", virtual_machine_status=machine))
    await until(lambda: node.status("a").get("phase") == "Running")
    node.api.admin.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}}, "default")
    await until(lambda: node.pods.pods[uid].metadata.labels == {"x": "y"})
    before = len(node.writes())
    node.say(uid, PodStatus(phase="Succeeded", virtual_machine_status=machine))
    await until(lambda: node.status("a").get("phase") == "Succeeded")
    assert len(node.writes()) == before + 1, "only the change is sent"
    assert before <= 2


async def test_a_pod_is_deleted_once_its_end_is_reported_and_nothing_of_it_is_here(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, PodStatus(phase="Running"))
    node.api.admin.delete("pods", "a", namespace="default")
    await until(lambda: node.manager.removed)
    assert node.status("a") != {}
    node.say(uid, PodStatus(phase="Failed", reason="Error"))
    await until(lambda: node.status("a").get("phase") == "Failed")
    node.say(uid, None)
    await until(lambda: node.status("a") == {})


async def test_a_deleted_pod_that_no_one_knows_here_is_let_go(node: Node) -> None:
    uid = await node.bind("a")
    del node.manager.pods[uid]  # the agent that ran it lost everything
    node.api.admin.delete("pods", "a", namespace="default")
    await until(lambda: node.status("a") == {})


async def test_another_pod_of_the_same_name_is_left_alone(node: Node) -> None:
    first = await node.bind("a")
    node.say(first, PodStatus(phase="Running"))
    await until(lambda: node.status("a").get("phase") == "Running")
    node.api.admin.delete("pods", "a", namespace="default", gracePeriodSeconds=0)
    second = await node.bind("a")
    assert second != first
    node.say(first, PodStatus(phase="Failed"))
    node.say(first, None)
    node.say(second, PodStatus(phase="Running", message="the new one"))
    await until(lambda: node.status("a").get("message") == "the new one")
    assert node.status("a")["phase"] == "Running"


async def test_a_pod_that_was_ended_by_force_on_the_node_goes_from_the_api_too(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, PodStatus(phase="Running"))
    await until(lambda: node.status("a").get("phase") == "Running")
    node.say(uid, None, Deletion(requested_at=0.0, grace_seconds=0, force=True))
    await until(lambda: node.status("a") == {})


async def test_news_of_a_pod_that_was_ended_by_force_do_not_start_it_again(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, PodStatus(phase="Running"))
    await until(lambda: node.status("a").get("phase") == "Running")
    node.api.faults.add(Rule(code=503, methods=("DELETE",), times=3))
    node.say(uid, None, Deletion(requested_at=0.0, grace_seconds=0, force=True))
    node.api.admin.patch("pods", "a", {"metadata": {"labels": {"new": "1"}}}, namespace="default")
    await until(lambda: node.pods.pods[uid].metadata.labels.get("new"))
    assert uid not in node.manager.pods
    while node.status("a"):
        await node.clock.run_for(1.0)
    assert uid not in node.manager.pods


async def test_trouble_on_the_way_is_made_up_for(node: Node) -> None:
    uid = await node.bind("a")
    for code in (500, 503, 429):
        node.api.faults.fail(code, path="/status")
    node.api.faults.drop(path="/status")
    node.say(uid, PodStatus(phase="Running"))
    while node.status("a").get("phase") != "Running":
        await node.clock.run_for(1.0)


async def test_a_container_that_runs_against_its_policy_does_not_hold_up_the_rest(node: Node) -> None:
    ended = ContainerState(terminated=ContainerStateTerminated(exit_code=0))
    again = ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff"))
    one = ContainerStatus(name="c", image="i", image_id="", ready=False, restart_count=0, state=ended)
    uid = await node.bind("a", restartPolicy="OnFailure")
    node.say(uid, PodStatus(phase="Running", container_statuses=(one,)))
    await until(lambda: node.status("a").get("phase") == "Running")
    later = replace(one, state=again, restart_count=1)
    node.say(uid, PodStatus(phase="Running", message="news", container_statuses=(later,)))
    await until(lambda: node.status("a").get("message") == "news")
    assert "terminated" in node.status("a")["containerStatuses"][0]["state"]
    await until(lambda: node.reporter.is_idle)


async def test_a_server_that_asks_to_wait_is_left_alone_for_as_long(node: Node) -> None:
    uid = await node.bind("a")
    busy = node.api.faults.add(Rule(code=429, retry_after_seconds=40, path="/status"))
    node.say(uid, PodStatus(phase="Running"))
    await until(lambda: busy.hits)
    await node.clock.run_for(39.0)
    assert busy.hits == 1
    node.api.faults.clear()
    while node.status("a").get("phase") != "Running":
        await node.clock.run_for(1.0)


async def test_a_server_that_was_set_back_is_told_again_what_it_has_lost(node: Node) -> None:
    uid = await node.bind("a")
    before = node.api.backup()
    node.say(uid, PodStatus(phase="Running", conditions=(RUNNING,)))
    await until(lambda: node.status("a").get("phase") == "Running")
    node.api.restore(before)
    await until(lambda: node.status("a").get("phase") == "Running")
    node.say(uid, PodStatus(phase="Succeeded"))
    await until(lambda: node.status("a").get("phase") == "Succeeded")


async def test_steps_on_the_way_to_a_start_are_reported_with_what_comes_next(node: Node) -> None:
    uid = await node.bind("a")
    for number in range(5):
        node.say(uid, on_its_way(f"10.0.0.{number}"))
    node.say(uid, PodStatus(phase="Running", conditions=(RUNNING,)))
    await until(lambda: node.status("a").get("phase") == "Running")
    await until(lambda: node.reporter.is_idle)
    assert node.writes() == ["PATCH"]


async def test_the_first_step_waits_though_the_pod_has_just_come(node: Node) -> None:
    loop = asyncio.get_running_loop()
    node.manager.on_update = lambda uid: loop.call_soon(node.say, uid, on_its_way("10.0.0.1"))
    await node.bind("a")
    await node.clock.settle()
    assert not node.reporter.is_idle
    assert node.writes() == []


async def test_a_start_that_takes_long_is_reported_after_a_quiet_second(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, on_its_way("10.0.0.1"))
    await node.clock.run_for(QUIET_SECONDS - 0.1)
    assert node.writes() == []
    assert not node.reporter.is_idle, "it is still to be told"
    node.say(uid, on_its_way("10.0.0.2"))
    await node.clock.run_for(QUIET_SECONDS - 0.1)
    assert node.writes() == []
    await node.clock.run_for(0.2)
    await until(lambda: node.status("a").get("podIP") == "10.0.0.2")


async def test_changes_in_the_api_do_not_hasten_what_waits(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, on_its_way("10.0.0.1"))
    node.api.admin.patch("pods", "a", {"metadata": {"labels": {"x": "y"}}}, "default")
    await until(lambda: node.pods.pods[uid].metadata.labels == {"x": "y"})
    await node.clock.settle()
    assert node.writes() == []
    node.say(uid, PodStatus(phase="Running"))
    await until(lambda: node.status("a").get("phase") == "Running")
    assert node.status("a").get("podIP") is None


async def test_news_of_other_pods_put_it_off_for_five_seconds_at_most(node: Node) -> None:
    slow, busy = await node.bind("slow"), await node.bind("busy")
    node.say(slow, on_its_way("10.0.0.1"))
    for number in range(9):
        node.say(busy, PodStatus(phase="Running", message=f"step {number}"))
        await node.clock.run_for(0.5)
    assert "podIP" not in node.status("slow")
    for number in range(2):
        node.say(busy, PodStatus(phase="Running", message=f"last step {number}"))
        await node.clock.run_for(0.5)
    await until(lambda: node.status("slow").get("podIP") == "10.0.0.1")


async def test_what_waits_is_reported_before_its_pod_is_deleted(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, on_its_way("10.0.0.1"))
    node.api.admin.delete("pods", "a", namespace="default")
    await until(lambda: node.manager.removed)
    node.say(uid, None)
    await until(lambda: node.status("a") == {})
    assert node.writes() == ["PATCH", "DELETE"]


@pytest.fixture
async def blind(api: ApiServerDouble) -> AsyncIterator[Node]:
    """A reporter at work whose watch is the test's own hand: `see`."""
    api.settings.service_account_admission = False
    api.admin.create("nodes", {"metadata": {"name": NODE}})
    one = Node(api)
    task = asyncio.create_task(one.reporter.run())
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            yield one
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await one.client.close()
        await until(lambda: not connections(api))


def see(node: Node) -> Pod:
    """The watch brings pod ``a`` as the API server has it."""
    found = msgspec.convert(node.api.admin.get("pods", "a", namespace="default"), Pod)
    node.pods.put(found)
    return found


async def bound(node: Node, **metadata: Any) -> Pod:
    """Pod ``a``, which runs here, and whose deletion someone has asked for."""
    pod = {
        "metadata": {"name": "a", **metadata},
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]},
    }
    node.api.admin.create("pods", pod, namespace="default")
    node.pods.replace([], [])
    uid = see(node).uid
    node.say(uid, PodStatus(phase="Running"))
    await reported(node)
    node.api.admin.delete("pods", "a", namespace="default")
    return see(node)


async def reported(node: Node) -> None:
    """Nothing is left to tell."""
    await until(lambda: node.reporter.is_idle)


def deletions(node: Node) -> int:
    return node.writes().count("DELETE")


async def test_a_watch_that_is_behind_brings_no_second_deletion(blind: Node) -> None:
    pod = await bound(blind)
    blind.say(pod.uid, None)
    await until(lambda: blind.status("a") == {})
    for _ in range(3):
        blind.pods.put(pod)  # the mark of our own deletion, before its end
        await reported(blind)
    assert deletions(blind) == 1


async def test_a_pod_that_finalizers_keep_is_let_go_once(blind: Node) -> None:
    pod = await bound(blind, finalizers=["example.com/kept"])
    blind.say(pod.uid, None)
    await reported(blind)
    for number in range(3):
        blind.api.admin.patch("pods", "a", {"metadata": {"labels": {"n": str(number)}}}, "default")
        see(blind)
        await reported(blind)
    assert deletions(blind) == 1
    blind.api.admin.patch("pods", "a", {"metadata": {"finalizers": None}}, "default")
    assert blind.status("a") == {}, "the API server needs no second word"


async def test_a_deletion_whose_answer_was_lost_is_asked_for_again(blind: Node) -> None:
    pod = await bound(blind)
    lost = blind.api.faults.add(Rule(code=504, methods=("DELETE",), times=1))
    blind.say(pod.uid, None)
    while blind.status("a"):
        await blind.clock.run_for(1.0)
    assert (lost.hits, deletions(blind)) == (1, 1)


async def test_a_server_that_was_set_back_is_asked_for_the_deletion_again(blind: Node) -> None:
    pod = await bound(blind)
    before = blind.api.backup()
    blind.say(pod.uid, None)
    await until(lambda: blind.status("a") == {})
    await reported(blind)
    blind.api.restore(before)
    blind.pods.replace([pod], [])
    await until(lambda: blind.status("a") == {})


async def test_nothing_is_kept_of_pods_that_are_gone(blind: Node) -> None:
    pod = await bound(blind)
    blind.say(pod.uid, None)
    await until(lambda: blind.status("a") == {})
    await reported(blind)
    blind.pods.drop(pod)
    again = await bound(blind)  # and one that the API server forgets while it still ends here
    blind.api.admin.delete("pods", "a", namespace="default", gracePeriodSeconds=0)
    blind.pods.drop(again)
    blind.say(again.uid, PodStatus(phase="Failed"))
    await reported(blind)
    blind.say(again.uid, None)
    await reported(blind)
    kept = {name: one for name, one in vars(blind.reporter).items() if isinstance(one, dict) and one}
    assert kept == {}
