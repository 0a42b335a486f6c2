"""Mirror pods in an API server: made, made again, deleted, and told what the static pods do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import InvalidPod, ObjectRef, PodUid, SystemClock, names
from kubeletx.apiserver.mirrors.mirrors import Mirrors
from kubeletx.apiserver.pods import ApiPods
from kubeletx.apiserver.status.reporter import StatusReporter
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig
from kubeletx.kube.client.resources import PODS
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, PodStatus
from kubeletx.kube.types.node import Node
from kubeletx.pods.model.facts import DesiredPod, PodFacts
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.apiserver.api_connections import connections

GUARD_SECONDS = 60
NODE = "mirrors"


class Manager:
    """A pod manager whose API pods are a mistake here."""

    def update(self, source: str, pod: Pod) -> None:
        raise AssertionError(f"{pod.ref} is a mirror and must not run")

    def remove(self, source: str, uid: PodUid, grace_seconds: int | None = None, force: bool = False) -> None:
        raise AssertionError(f"{uid} is a mirror")

    def synced(self, source: str) -> None:
        """The first list is there."""

    def invalid(self, source: str, origin: str, error: InvalidPod, uid: PodUid | None = None) -> None:
        raise AssertionError(error)

    def valid(self, source: str, origin: str) -> None:
        raise AssertionError(origin)


class Around:
    """Mirrors at work against the double; `statics` is what the node runs."""

    def __init__(self, api: ApiServerDouble) -> None:
        self.api = api
        self.clock = SystemClock()
        self.statics: dict[tuple[str, str], DesiredPod] = {}
        self.all_seen = True
        self.events: list[tuple[ObjectRef, str, str]] = []
        self.client = KubeClient(load_kubeconfig(api.node_kubeconfig(NODE)), clock=self.clock)
        self.pods = ApiPods(Manager(), is_here=lambda uid: True)
        self.statuses = StatusReporter(self.client, self.pods, clock=self.clock, is_here=lambda uid: True)
        self.mirrors = Mirrors(
            self.client,
            self.pods,
            lambda: (dict(self.statics), set()),
            all_seen=lambda: self.all_seen,
            events=self,
            clock=self.clock,
        )
        self.reflector = Reflector(
            self.client, PODS, Pod, self.pods, clock=self.clock, field_selector=f"spec.nodeName={NODE}"
        )

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        self.events.append((ref, reason, message))

    async def run(self, ready: asyncio.Event) -> None:
        node = self.api.node_client(NODE).create("nodes", {"metadata": {"name": NODE}})
        async with asyncio.TaskGroup() as group:
            group.create_task(self.reflector.run())
            await self.reflector.synced.wait()
            group.create_task(self.statuses.run())
            group.create_task(self.mirrors.run())
            self.mirrors.node_changed(Node(metadata=ObjectMeta(name=NODE, uid=node["metadata"]["uid"])))
            ready.set()

    def set(self, name: str, hash_: str, namespace: str = "default") -> DesiredPod:
        pod = Pod(
            metadata=ObjectMeta(
                name=name, namespace=namespace, uid=hash_, annotations={names.CONFIG_HASH: hash_}
            ),
            spec=PodSpec(containers=(Container(name="c", image="i"),), node_name=NODE),
        )
        one = DesiredPod(uid=PodUid(hash_), pod=pod, source="file", spec_hash=hash_)
        self.statics[(namespace, name)] = one
        self.mirrors.wake()
        return one

    def unset(self, name: str) -> None:
        del self.statics[("default", name)]
        self.mirrors.wake()

    def find(self, name: str) -> dict[str, Any] | None:
        items = self.api.admin.list("pods", "default")["items"]
        return next((one for one in items if one["metadata"]["name"] == name), None)

    def status(self, name: str) -> dict[str, Any]:
        found = self.find(name) or {}
        return dict(found.get("status", {}))

    def asked(self, method: str) -> int:
        """How many such requests for pods the node has made."""
        found = self.api.requests.all(user=f"system:node:{NODE}", method=method)
        return sum("/pods" in one.path for one in found)

    async def until(self, holds: Callable[[], object]) -> None:
        await until(holds)

    async def shown(self, name: str, hash_: str, *, not_uid: str = "") -> dict[str, Any]:
        """The mirror of this hash, once it is there."""
        found: list[dict[str, Any]] = []

        def look() -> bool:
            pod = self.find(name)
            if pod is None or pod["metadata"]["uid"] == not_uid:
                return False
            found[:] = [pod]
            return bool(pod["metadata"]["annotations"].get(names.CONFIG_MIRROR) == hash_)

        await self.until(look)
        return found[0]


@pytest.fixture
async def around(api: ApiServerDouble) -> AsyncIterator[Around]:
    """Running."""
    made, ready = Around(api), asyncio.Event()
    task = asyncio.create_task(made.run(ready))
    try:
        async with asyncio.timeout(GUARD_SECONDS):
            await ready.wait()
        yield made
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await made.client.close()
        await made.until(lambda: not connections(api))  # TLS says good-bye first


async def test_a_node_may_make_the_mirrors_of_its_static_pods(around: Around) -> None:
    around.set("web", "h1")
    made = await around.shown("web", "h1")
    assert made["spec"]["nodeName"] == NODE
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Node"


@pytest.mark.parametrize("grace", [0, 30])
async def test_a_mirror_that_is_deleted_comes_back_as_another(around: Around, grace: int) -> None:
    around.set("web", "h1")
    first = await around.shown("web", "h1")
    around.api.admin.delete("pods", "web", "default", gracePeriodSeconds=grace)
    second = await around.shown("web", "h1", not_uid=first["metadata"]["uid"])
    assert "deletionTimestamp" not in second["metadata"]


async def test_a_mirror_that_finalizers_keep_is_asked_for_once(around: Around) -> None:
    around.set("web", "h1")
    first = await around.shown("web", "h1")
    around.api.admin.patch("pods", "web", {"metadata": {"finalizers": ["example.com/kept"]}}, "default")
    around.api.admin.delete("pods", "web", "default", gracePeriodSeconds=0)
    await around.until(lambda: around.asked("DELETE"))
    for number in range(20):
        around.api.admin.patch("pods", "web", {"metadata": {"labels": {"n": str(number)}}}, "default")
        around.mirrors.wake()
        await let_others_work()
    assert (around.asked("DELETE"), around.asked("POST")) == (1, 1)
    around.api.admin.patch("pods", "web", {"metadata": {"finalizers": None}}, "default")
    await around.shown("web", "h1", not_uid=first["metadata"]["uid"])


async def test_a_server_that_was_set_back_is_asked_again_to_delete_a_mirror(around: Around) -> None:
    around.set("web", "h1")
    await around.shown("web", "h1")
    before = around.api.backup()
    around.unset("web")
    await around.until(lambda: around.find("web") is None)
    around.api.restore(before)
    await around.until(lambda: around.find("web") is None)


async def test_a_changed_static_pod_gets_a_new_mirror(around: Around) -> None:
    around.set("web", "h1")
    await around.shown("web", "h1")
    around.set("web", "h2")
    await around.shown("web", "h2")


async def test_the_mirror_of_a_vanished_pod_is_deleted_once_all_sources_spoke(around: Around) -> None:
    around.set("web", "h1")
    await around.shown("web", "h1")
    around.all_seen = False
    around.unset("web")
    around.set("other", "h2")
    await around.shown("other", "h2")
    assert around.find("web") is not None
    around.all_seen = True
    around.mirrors.wake()
    await around.until(lambda: around.find("web") is None)


async def test_status_is_written_through_each_mirror_in_turn(around: Around) -> None:
    static = around.set("web", "h1")
    first = await around.shown("web", "h1")
    around.statuses.board_changed(static, PodFacts(), PodStatus(phase="Running", pod_ip="10.0.0.1"))
    await around.until(lambda: around.status("web").get("phase") == "Running")
    around.api.admin.delete("pods", "web", "default", gracePeriodSeconds=0)
    await around.shown("web", "h1", not_uid=first["metadata"]["uid"])
    await around.until(lambda: around.status("web").get("podIP") == "10.0.0.1")


async def test_a_status_never_reaches_the_mirror_of_another_pod(around: Around) -> None:
    static = around.set("web", "h1")
    await around.shown("web", "h1")
    other = replace(static, pod=replace(static.pod, metadata=replace(static.pod.metadata, annotations={})))
    other = replace(other, uid=PodUid("h0"))
    around.statuses.board_changed(other, PodFacts(), PodStatus(phase="Failed"))
    around.statuses.board_changed(other, PodFacts(), None)
    around.statuses.board_changed(static, PodFacts(), PodStatus(phase="Running"))
    await around.until(lambda: around.status("web").get("phase") == "Running")
    sent = [one for one in around.api.requests.all(method="PATCH") if one.path.endswith("/status")]
    assert len(sent) == 1


async def test_a_refused_mirror_is_reported_once_and_holds_up_no_one(around: Around) -> None:
    around.set("lost", "h1", namespace="nowhere")
    around.set("web", "h2")
    await around.shown("web", "h2")
    await around.until(lambda: around.events)
    around.api.admin.create("namespaces", {"metadata": {"name": "nowhere"}})
    await around.until(lambda: ("nowhere", "lost") in around.pods.mirrors)
    ((ref, reason, message),) = around.events
    assert (ref.uid, reason) == ("h1", "FailedMirrorPod")
    assert "nowhere" in message


async def test_a_pod_that_has_the_name_already_is_left_alone(around: Around) -> None:
    container = {"name": "c", "image": "i"}
    around.api.admin.create(
        "pods",
        {"metadata": {"name": "web"}, "spec": {"nodeName": "elsewhere", "containers": [container]}},
        "default",
    )
    around.set("web", "h1")
    await around.until(lambda: around.events)
    found = around.find("web")
    assert found is not None
    assert found["spec"]["nodeName"] == "elsewhere"
