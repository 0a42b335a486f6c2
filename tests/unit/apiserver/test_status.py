"""Statuses on their way to an API server: the newest counts, others' words stay, and what has ended is deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from api_connections import connections

from kubeletx.api import InvalidPod, PodUid, RuntimeName
from kubeletx.apiserver.pods import ApiPods
from kubeletx.apiserver.status import StatusReporter
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.core import Pod, PodCondition, PodStatus, VirtualMachineStatus
from kubeletx.pods.facts import Deletion, DesiredPod, PodFacts
from kubeletx.runtimes.clock import SystemClock
from kubeletx.testing.apiserver import ApiServerDouble

GUARD_SECONDS = 60
NODE = "teller"
RUNNING = PodCondition(type="Ready", status="True")


class Manager:
    """A pod manager that runs what it is told to run and ends it when a test says so."""

    def __init__(self) -> None:
        self.pods: dict[PodUid, Pod] = {}
        self.removed: list[PodUid] = []

    def update(self, source: str, pod: Pod) -> None:
        self.pods[pod.uid] = pod

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
        self.client = KubeClient(load_kubeconfig(api.node_kubeconfig(NODE)), clock=clock)
        is_here = self.manager.pods.__contains__
        self.pods = ApiPods(self.manager, is_here=is_here)
        self.reporter = StatusReporter(self.client, self.pods, clock=clock, is_here=is_here)
        self.reflector = Reflector(
            self.client, PODS, Pod, self.pods, clock=clock, field_selector=f"spec.nodeName={NODE}"
        )

    async def bind(self, name: str) -> PodUid:
        """Make a pod and wait until the manager has it."""
        pod = {
            "metadata": {"name": name},
            "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "i"}]},
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


async def until(is_so: Callable[[], Any]) -> None:
    """Wait until it is so; the fixture's guard ends a test that hangs."""
    while not is_so():
        await asyncio.sleep(0.01)


async def test_the_newest_status_is_told_with_the_runtime_that_was_chosen(node: Node) -> None:
    uid = await node.bind("a")
    for number in range(20):
        node.say(uid, PodStatus(phase="Pending", message=f"step {number}"))
    node.say(uid, PodStatus(phase="Running", conditions=(RUNNING,)))
    await until(lambda: node.status("a").get("phase") == "Running")
    assert "message" not in node.status("a")
    pod = node.api.admin.get("pods", "a", namespace="default")
    assert pod["metadata"]["annotations"]["kubeletx.io/bound-runtime"] == "one"
    assert len(node.writes()) <= 3, "what came between is not sent"


async def test_a_status_that_somebody_wrote_over_is_written_again(node: Node) -> None:
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
    await asyncio.sleep(0.2)
    assert len(node.writes()) == before
    assert before <= 2


async def test_a_pod_is_deleted_once_its_end_is_told_and_nothing_of_it_is_here(node: Node) -> None:
    uid = await node.bind("a")
    node.say(uid, PodStatus(phase="Running"))
    node.api.admin.delete("pods", "a", namespace="default")
    await until(lambda: node.manager.removed)
    assert node.status("a") != {}
    node.say(uid, PodStatus(phase="Failed", reason="Error"))
    await until(lambda: node.status("a").get("phase") == "Failed")
    node.say(uid, None)
    await until(lambda: node.status("a") == {})


async def test_a_deleted_pod_that_nobody_knows_here_is_let_go(node: Node) -> None:
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


async def test_trouble_on_the_way_is_made_up_for(node: Node) -> None:
    uid = await node.bind("a")
    for code in (500, 503, 429):
        node.api.faults.fail(code, path="/status")
    node.api.faults.drop(path="/status")
    node.say(uid, PodStatus(phase="Running"))
    await until(lambda: node.status("a").get("phase") == "Running")
