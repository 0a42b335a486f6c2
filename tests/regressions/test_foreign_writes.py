"""Someone else who writes what this node reports is answered ever later, and named in the log."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from kubeletx.api import PodUid, RuntimeName, SystemClock
from kubeletx.api.names import CONFIG_HASH, CONFIG_MIRROR
from kubeletx.apiserver.field_managers import ManagedFieldsEntry, last_writer, paths_of
from kubeletx.apiserver.foreign_writes import BURST, CAP_SECONDS, FORGET_SECONDS, ForeignWrites
from kubeletx.apiserver.mirrors.mirrors import Mirrors
from kubeletx.apiserver.node.api_node import ApiNode, NodePolicy
from kubeletx.apiserver.node.taints import TypeTaints
from kubeletx.apiserver.pods import ApiPods
from kubeletx.apiserver.status.reporter import StatusReporter
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import NODES, PODS
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, PodStatus
from kubeletx.kube.types.node import Node, NodeCondition, NodeSpec, NodeStatus, Taint
from kubeletx.pods.model.facts import DesiredPod, PodFacts
from kubeletx.testing import FakeClock, FakeEventSink
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.apiserver.client import STRATEGIC
from kubeletx_testing.waiting import until
from tests.unit.apiserver.api_connections import connections

NAME = "contested"
LABEL = "runtime.kubeletx.io/one"
TAINT = Taint(key="workload.kubeletx.io/vm", effect="NoSchedule")
OTHER = "other-writer"
UID = PodUid("static-uid")


# --- the rule ---


async def test_the_first_answer_is_immediate_and_later_ones_wait_10_20_40_up_to_160_seconds() -> None:
    clock = FakeClock()
    foreign = ForeignWrites(clock)
    waits = []
    for _ in range(7):
        began = clock.monotonic()
        while not foreign.may_answer("x", lambda: None):
            clock.advance(1.0)
        foreign.settle("x")
        waits.append(round(clock.monotonic() - began))
    assert waits == [0, 10, 20, 40, 80, 160, CAP_SECONDS]


async def test_an_object_that_was_left_in_peace_is_answered_at_once_again() -> None:
    clock = FakeClock()
    foreign = ForeignWrites(clock)
    for quiet, is_at_once in ((0.0, True), (FORGET_SECONDS - 1, False), (FORGET_SECONDS + 200, True)):
        clock.advance(quiet)
        assert foreign.may_answer("x", lambda: None) is is_at_once
        foreign.settle("x")


async def test_answers_for_all_objects_together_are_limited() -> None:
    clock = FakeClock()
    foreign = ForeignWrites(clock)

    def answered() -> int:
        count = 0
        for number in range(1000):
            if foreign.may_answer(number, lambda: None):
                foreign.settle(number)
                count += 1
        return count

    assert answered() == BURST


def test_the_writer_is_the_manager_that_changed_one_of_the_fields_last() -> None:
    patch = {
        "metadata": {"uid": "u", "labels": {LABEL: "ready"}},
        "status": {"conditions": [{"type": "Ready"}]},
    }
    assert list(paths_of(patch)) == [
        ("f:metadata", "f:labels", f"f:{LABEL}"),
        ("f:status", "f:conditions", 'k:{"type":"Ready"}'),
    ]
    label = {"f:metadata": {"f:labels": {f"f:{LABEL}": {}}}}
    old = ManagedFieldsEntry(manager="old", time="2030-01-01T00:00:00Z", fields=label)
    new = ManagedFieldsEntry(manager="new", time="2030-01-02T00:00:00Z", fields=label)
    last = ManagedFieldsEntry(manager="last", time="2030-01-03T00:00:00Z", fields={"f:data": {}})
    ours = ManagedFieldsEntry(manager="kubeletx", time="2030-01-04T00:00:00Z", fields=label)
    assert last_writer((old, new, last), paths_of(patch)) == "new"
    assert last_writer((last, replace(ours, fields={})), paths_of(patch)) == "last", "the field was removed"
    assert last_writer((old, ours), paths_of(patch)) == "kubeletx (another agent of this name)"
    assert last_writer((), paths_of(patch)) == "unknown"


# --- against the double ---


class Contest:
    """The parts of one node against an API server; `clock` is theirs and stands still unless a test moves it."""

    def __init__(self, api: ApiServerDouble) -> None:
        self.api = api
        self.clock = FakeClock()
        self.real = SystemClock()
        self.client = KubeClient(load_kubeconfig(api.node_kubeconfig(NAME)), clock=self.real)
        self.admin = KubeClient(load_kubeconfig(api.admin_kubeconfig()), clock=self.real)
        self.tasks: list[asyncio.Task[Any]] = []

    def begin(self, *runs: Callable[[], Any]) -> None:
        self.tasks += [asyncio.create_task(run()) for run in runs]

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.client.close()
        await self.admin.close()
        await until(lambda: not connections(self.api))

    async def flips(self, is_ours: Callable[[], bool], write: Callable[[], object]) -> int:
        """How often the other writer had to write, over a second in which the node's clock stands still."""
        count = 0
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1.0):
                while True:
                    await until(is_ours)
                    write()
                    count += 1
        return count


@pytest.fixture
async def contest(tmp_path: Path) -> AsyncIterator[Contest]:
    with ApiServerDouble(tmp_path / "api") as api:
        api.settings.service_account_admission = False
        one = Contest(api)
        try:
            yield one
        finally:
            await one.close()


async def fight(
    contest: Contest, is_ours: Callable[[], bool], write: Callable[[], object]
) -> list[dict[str, Any]]:
    """Two flips at once, one more after ten seconds, another after twenty; the lines of the log."""
    with capture_logs() as lines:
        await until(is_ours)
        assert await contest.flips(is_ours, write) == 2
        for seconds in (10.0, 20.0):
            await contest.clock.run_for(seconds - 1)
            assert await contest.flips(is_ours, write) == 0
            await contest.clock.run_for(1.5)
            assert await contest.flips(is_ours, write) == 1
    return [one for one in lines if one["event"].startswith("Corrected a foreign write")]


def api_node(contest: Contest, **fields: Any) -> ApiNode:
    condition = NodeCondition(type="Ready", status="True", reason="KubeletReady")
    made = Node(
        metadata=ObjectMeta(name=NAME, uid=NAME, labels={LABEL: "ready"}),
        status=NodeStatus(capacity={"cpu": "2"}, conditions=(condition,)),
    )

    async def watch() -> AsyncIterator[Node]:
        yield made
        await asyncio.Event().wait()

    policy = NodePolicy(update_seconds=3600, **fields)
    node = ApiNode(contest.client, NAME, watch, clock=contest.clock, policy=policy)
    reflector = Reflector(
        contest.client, NODES, Node, node, clock=contest.real, field_selector=f"metadata.name={NAME}"
    )

    async def follow() -> None:
        await node.registered.wait()
        await reflector.run()

    contest.begin(node.run, follow)
    return node


async def test_a_label_that_another_writes_again_and_again(contest: Contest) -> None:
    api_node(contest)
    admin = contest.api.admin

    def label() -> str:
        found = admin.list("nodes")["items"]
        return found[0]["metadata"].get("labels", {}).get(LABEL, "") if found else ""

    lines = await fight(
        contest,
        lambda: label() == "ready",
        lambda: admin.patch("nodes", NAME, {"metadata": {"labels": {LABEL: "x"}}}, fieldManager=OTHER),
    )
    assert [one["manager"] for one in lines] == [OTHER] * 3
    assert lines[0]["object"] == f"node {NAME}"
    assert lines[0]["fields"] == f"metadata.labels[{LABEL}]"
    assert [one["next_answer_seconds"] for one in lines] == [10, 20, 40]


async def test_a_condition_that_another_writes_again_and_again(contest: Contest) -> None:
    api_node(contest)
    admin = contest.api.admin

    def ready() -> str:
        found = admin.list("nodes")["items"]
        conditions = found[0].get("status", {}).get("conditions", []) if found else []
        return next((one["status"] for one in conditions if one["type"] == "Ready"), "")

    other = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "Mine"}]}}
    lines = await fight(
        contest,
        lambda: ready() == "True",
        lambda: admin.patch("nodes", NAME, other, "", "status", STRATEGIC, fieldManager=OTHER),
    )
    assert {(one["manager"], one["fields"]) for one in lines} == {(OTHER, "status.conditions[Ready]")}


async def test_a_node_that_another_deletes_again_and_again(contest: Contest) -> None:
    api_node(contest, register_again=True)
    admin = contest.api.admin
    is_there = lambda: bool(admin.list("nodes")["items"])  # noqa: E731
    await until(is_there)
    assert await contest.flips(is_there, lambda: admin.delete("nodes", NAME)) == 2
    await contest.clock.run_for(10.5)
    assert await contest.flips(is_there, lambda: admin.delete("nodes", NAME)) == 1


async def test_a_node_that_the_controller_gave_up_for_good_reasons_is_never_kept_waiting(
    contest: Contest,
) -> None:
    api_node(contest)
    admin = contest.api.admin
    unknown = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown"}

    def ready() -> str:
        found = admin.list("nodes")["items"]
        conditions = found[0].get("status", {}).get("conditions", []) if found else []
        return next((one["status"] for one in conditions if one["type"] == "Ready"), "")

    for _ in range(4):
        await until(lambda: ready() == "True")
        await contest.clock.run_for(45)
        admin.patch("nodes", NAME, {"status": {"conditions": [unknown]}}, subresource="status")
    await until(lambda: ready() == "True")


async def test_a_pods_phase_that_another_writes_again_and_again(contest: Contest) -> None:
    admin = contest.api.admin
    admin.create("nodes", {"metadata": {"name": NAME}})
    here: dict[PodUid, Pod] = {}

    class Sink:
        def update(self, source: str, pod: Pod) -> None:
            here[pod.uid] = pod

        def synced(self, source: str) -> None: ...

        def remove(self, *_: object) -> None: ...

    pods = ApiPods(Sink(), is_here=here.__contains__)  # type: ignore[arg-type]
    reporter = StatusReporter(contest.client, pods, clock=contest.clock, is_here=here.__contains__)
    reflector = Reflector(
        contest.client, PODS, Pod, pods, clock=contest.real, field_selector=f"spec.nodeName={NAME}"
    )
    contest.begin(reporter.run, reflector.run)
    made = {
        "metadata": {"name": "a"},
        "spec": {"nodeName": NAME, "containers": [{"name": "c", "image": "i"}]},
    }
    admin.create("pods", made, namespace="default")
    await until(lambda: here)
    (pod,) = here.values()
    desired = DesiredPod(uid=pod.uid, pod=pod, source="api", spec_hash="")
    running = PodStatus(phase="Running", qos_class="BestEffort")
    reporter.board_changed(desired, PodFacts(runtime=RuntimeName("one")), running)

    def phase() -> str:
        return str(admin.get("pods", "a", namespace="default")["status"].get("phase"))

    def write() -> None:
        admin.patch("pods", "a", {"status": {"phase": "Pending"}}, "default", "status", fieldManager=OTHER)

    lines = await fight(contest, lambda: phase() == "Running", write)
    assert {(one["object"], one["manager"]) for one in lines} == {("pod default/a", OTHER)}
    assert all(one["fields"].startswith("status.phase") for one in lines)
    assert reporter.is_idle, "an answer that waits does not hold up the end of the agent"
    reporter.board_changed(
        desired, PodFacts(runtime=RuntimeName("one")), PodStatus(phase="Succeeded", message="news")
    )
    await until(lambda: phase() == "Succeeded")  # at once


async def test_a_taint_that_another_removes_again_and_again(contest: Contest) -> None:
    admin = contest.api.admin
    admin.create("nodes", {"metadata": {"name": NAME}})

    async def due() -> AsyncIterator[Node]:
        yield Node(spec=NodeSpec(taints=(TAINT,)))
        await asyncio.Event().wait()

    taints = TypeTaints(contest.admin, due, clock=contest.clock)

    class Sink:
        def replace(self, items: tuple[Node, ...], unreadable: object) -> None:
            taints.node_changed(items[0] if items else None)

        def put(self, item: Node) -> None:
            taints.node_changed(item)

        def drop(self, item: Node) -> None: ...

        def undecodable(self, *_: object) -> None: ...

    reflector = Reflector(contest.admin, NODES, Node, Sink(), clock=contest.real)  # type: ignore[arg-type]
    contest.begin(taints.run, reflector.run)
    lines = await fight(
        contest,
        lambda: TAINT.key in [one["key"] for one in admin.get("nodes", NAME)["spec"].get("taints", ())],
        lambda: admin.patch("nodes", NAME, {"spec": {"taints": None}}, fieldManager=OTHER),
    )
    assert {one["fields"] for one in lines} == {"spec.taints"}


@pytest.mark.parametrize("how", ["delete", "change", "invent"])
async def test_mirrors_that_another_deletes_changes_or_invents_again_and_again(
    contest: Contest, how: str
) -> None:
    admin = contest.api.admin
    node = contest.api.node_client(NAME).create("nodes", {"metadata": {"name": NAME}})
    static = DesiredPod(
        uid=UID,
        pod=Pod(
            metadata=ObjectMeta(name="web", namespace="default", uid=UID, annotations={CONFIG_HASH: "h"}),
            spec=PodSpec(containers=(Container(name="c", image="i"),), node_name=NAME),
        ),
        source="file",
        spec_hash="h",
    )
    statics = {} if how == "invent" else {("default", "web"): static}

    class Sink:
        def synced(self, source: str) -> None: ...

    pods = ApiPods(Sink(), is_here=lambda _: False)  # type: ignore[arg-type]
    mirrors = Mirrors(
        contest.client,
        pods,
        lambda: (dict(statics), set()),
        all_seen=lambda: True,
        events=FakeEventSink(),
        clock=contest.clock,
    )
    reflector = Reflector(
        contest.client, PODS, Pod, pods, clock=contest.real, field_selector=f"spec.nodeName={NAME}"
    )
    contest.begin(reflector.run)
    await reflector.synced.wait()
    contest.begin(mirrors.run)
    mirrors.node_changed(Node(metadata=ObjectMeta(name=NAME, uid=node["metadata"]["uid"])))
    invented = {
        "metadata": {"name": "web", "annotations": {CONFIG_MIRROR: "x"}},
        "spec": {"nodeName": NAME, "containers": [{"name": "c", "image": "i"}]},
    }

    def is_ours() -> bool:
        found = admin.list("pods", "default")["items"]
        if how == "invent":
            return not found
        return [one["metadata"]["annotations"].get(CONFIG_MIRROR) for one in found] == ["h"]

    def write() -> None:
        if how == "delete":
            admin.delete("pods", "web", "default", gracePeriodSeconds=0)
        elif how == "change":
            notes = {"metadata": {"annotations": {CONFIG_MIRROR: "x"}}}
            admin.patch("pods", "web", notes, "default", fieldManager=OTHER)
        else:
            admin.create("pods", invented, "default", fieldManager=OTHER)

    lines = await fight(contest, is_ours, write)
    assert {one["manager"] for one in lines} == {"unknown" if how == "delete" else OTHER}
