"""The Node object and its lease in an API server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from kubeletx.api import Conflict, NotFound, SystemClock
from kubeletx.apiserver.node.api_node import ApiNode, NodePolicy
from kubeletx.apiserver.node.lease import NodeLease
from kubeletx.kube.client import KubeClient, Reflector, load_kubeconfig, requests
from kubeletx.kube.client.resources import NODES
from kubeletx.kube.types.core import ObjectMeta
from kubeletx.kube.types.node import ContainerImage, Node, NodeAddress, NodeCondition, NodeStatus, Taint
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble, Line, write_kubeconfig
from kubeletx_testing.apiserver.client import STRATEGIC
from kubeletx_testing.waiting import until
from tests.unit.apiserver.api_connections import connections

GUARD_SECONDS = 60
NAME = "self"
LABELS = {"kubernetes.io/hostname": NAME, "runtime.kubeletx.io/one": "ready"}


def wanted(ready: str = "True", **labels: str) -> Node:
    """The node as it stands."""
    return Node(
        metadata=ObjectMeta(name=NAME, uid=NAME, labels={**LABELS, **labels}),
        status=NodeStatus(
            capacity={"cpu": "2"}, conditions=(NodeCondition(type="Ready", status=ready, reason="Because"),)
        ),
    )


def given_up(status: str) -> dict[str, Any]:
    """The patch of a controller that sets the condition Ready."""
    return {"status": {"conditions": [{"type": "Ready", "status": status, "reason": "NodeStatusUnknown"}]}}


class Around:
    """An `ApiNode` at work against the double; `now` is what it is told to report."""

    def __init__(self, api: ApiServerDouble, **policy: Any) -> None:
        self.api = api
        self.now = wanted()
        self.changed = asyncio.Event()
        clock = SystemClock()
        self.client = KubeClient(load_kubeconfig(api.node_kubeconfig(NAME)), clock=clock)
        self.node = ApiNode(
            self.client, NAME, self._watch, clock=clock, policy=NodePolicy(update_seconds=3600, **policy)
        )
        self.lease = NodeLease(self.client, NAME, clock=clock)
        self.reflector = Reflector(
            self.client, NODES, Node, self.node, clock=clock, field_selector=f"metadata.name={NAME}"
        )

    async def _watch(self) -> AsyncIterator[Node]:
        while True:
            yield self.now
            await self.changed.wait()
            self.changed.clear()

    async def follow(self) -> None:
        """Once it is registered."""
        await self.node.registered.wait()
        await self.reflector.run()

    def become(self, node: Node) -> None:
        """Something changed."""
        self.now = node
        self.changed.set()

    def seen(self) -> dict[str, Any]:
        """The Node as the API server has it; empty: there is none."""
        items = self.api.admin.list("nodes")["items"]
        return items[0] if items else {}

    def ready(self) -> str:
        """Status of its condition Ready."""
        conditions = self.seen().get("status", {}).get("conditions", [])
        return next((one["status"] for one in conditions if one["type"] == "Ready"), "")


@pytest.fixture
async def run(api: ApiServerDouble) -> AsyncIterator[Callable[[Around], None]]:
    tasks: list[asyncio.Task[None]] = []
    clients: list[KubeClient] = []

    def begin(around: Around) -> None:
        clients.append(around.client)
        tasks.append(asyncio.create_task(around.node.run()))
        tasks.append(asyncio.create_task(around.follow()))

    async with asyncio.timeout(GUARD_SECONDS):
        yield begin
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for client in clients:
        await client.close()
    await until(lambda: not connections(api))  # TLS says good-bye first


Begin = Callable[[Around], None]


async def test_a_node_registers_with_labels_and_taints_and_reports_changes(
    api: ApiServerDouble, run: Begin
) -> None:
    around = Around(api, taints=(Taint(key="a", effect="NoSchedule"),))
    run(around)
    await until(lambda: around.ready() == "True")
    assert {"key": "a", "effect": "NoSchedule"} in around.seen()["spec"]["taints"]
    around.become(
        wanted("False", **{"runtime.kubeletx.io/one": "notready", "runtime.kubeletx.io/two": "ready"})
    )
    await until(lambda: around.ready() == "False")
    await until(lambda: "runtime.kubeletx.io/two" in around.seen()["metadata"]["labels"])
    around.become(wanted("False"))
    await until(lambda: "runtime.kubeletx.io/two" not in around.seen()["metadata"]["labels"])


async def test_a_node_that_is_there_keeps_what_others_gave_it(api: ApiServerDouble, run: Begin) -> None:
    labels = {"kubernetes.io/hostname": "old", "zone": "b", "runtime.kubeletx.io/gone": "ready"}
    api.admin.create("nodes", {"metadata": {"name": NAME, "labels": labels}, "spec": {"unschedulable": True}})
    around = Around(api, taints=(Taint(key="a", effect="NoSchedule"),))
    run(around)
    await until(lambda: around.ready() == "True")
    await until(lambda: around.seen()["metadata"]["labels"] == {**LABELS, "zone": "b"})
    assert around.seen()["spec"]["unschedulable"] is True
    assert "a" not in [taint["key"] for taint in around.seen()["spec"].get("taints", [])]


async def test_addresses_that_a_cloud_controller_set_stay_and_stale_hints_go(
    api: ApiServerDouble, run: Begin
) -> None:
    hint = "alpha.kubernetes.io/provided-node-ip"
    ours = (NodeAddress(type="InternalIP", address="10.0.0.1"),)
    theirs = [{"type": "ExternalIP", "address": "192.0.2.7"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    around = Around(api, external_cloud=True, schedulable=False)
    now = wanted()
    around.now = replace(
        now,
        metadata=replace(now.metadata, annotations={hint: "10.0.0.1"}),
        status=replace(now.status, addresses=ours),
    )
    run(around)
    await until(lambda: around.ready() == "True")
    assert [one["address"] for one in around.seen()["status"]["addresses"]] == ["10.0.0.1"]
    assert around.seen()["spec"]["unschedulable"] is True
    assert around.seen()["metadata"]["annotations"][hint] == "10.0.0.1"
    api.admin.patch("nodes", NAME, {"status": {"addresses": theirs}}, subresource="status")
    await until(lambda: len(around.node.current.status.addresses) == 2 if around.node.current else False)
    around.become(replace(wanted("False"), status=replace(wanted("False").status, addresses=ours)))
    await until(lambda: around.ready() == "False")
    await until(lambda: hint not in around.seen()["metadata"].get("annotations", {}))
    assert around.seen()["status"]["addresses"] == theirs


async def test_a_deleted_node_and_one_that_a_controller_gave_up_come_back(
    api: ApiServerDouble, run: Begin
) -> None:
    around = Around(api, register_again=True)
    run(around)
    await until(lambda: around.ready() == "True")
    uid = around.seen()["metadata"]["uid"]
    api.admin.delete("nodes", NAME)
    await until(lambda: around.ready() == "True" and around.seen()["metadata"]["uid"] != uid)
    api.admin.patch("nodes", NAME, given_up("Unknown"), subresource="status")
    await until(lambda: around.ready() == "True")


async def test_a_deleted_node_is_registered_again_at_the_next_start(api: ApiServerDouble, run: Begin) -> None:
    around = Around(api)
    run(around)
    await until(lambda: around.ready() == "True" and api.watch_count("nodes"))
    with capture_logs() as lines:
        api.admin.delete("nodes", NAME)
        await until(lambda: not around.node.registered.is_set())
        around.become(wanted("False"))
        await until(lambda: not around.changed.is_set())
    assert around.seen() == {}
    assert [one["registered_again"] for one in lines if "registered_again" in one] == [
        "at the next start of kubeletx"
    ]
    api.admin.create("nodes", {"metadata": {"name": NAME}})
    await until(lambda: around.ready() == "False")
    api.admin.delete("nodes", NAME)
    await until(lambda: not around.node.registered.is_set())
    run(Around(api))
    await until(lambda: around.ready() == "True")


async def test_what_the_api_server_does_not_store_is_not_a_foreign_write(
    api: ApiServerDouble, run: Begin
) -> None:
    """It drops empty texts, such as the message of a health check that passes, and images without a size."""
    around = Around(api)
    check = NodeCondition(type="kubeletx.io/Healthy-disk", status="True", reason="CheckPassed", message="")
    status = around.now.status
    around.now = replace(
        around.now,
        status=replace(
            status,
            conditions=(check, *status.conditions),
            images=(ContainerImage(names=("a",), size_bytes=0),),
        ),
    )
    with capture_logs() as lines:
        run(around)
        await until(lambda: around.ready() == "True" and api.watch_count("nodes"))
        api.requests.clear()
        around.become(replace(around.now))
        await until(lambda: not around.changed.is_set())
        api.admin.patch("nodes", NAME, given_up("False"), "", "status", STRATEGIC)
        await until(lambda: around.ready() == "True")  # the first true correction does not wait
    corrected = [one["fields"] for one in lines if "fields" in one]
    assert corrected == ["status.images, status.conditions[Ready]"]
    sent = [(one.method, one.path) for one in api.requests.all(user=f"system:node:{NAME}")]
    assert sent.count(("PATCH", f"/api/v1/nodes/{NAME}/status")) == 1


async def test_a_list_older_than_the_last_answer_is_not_a_foreign_write_and_no_deletion(
    api: ApiServerDouble, run: Begin
) -> None:
    around = Around(api)
    run(around)
    await until(lambda: around.ready() == "True" and api.watch_count("nodes"))
    first = around.node.current
    assert first is not None
    around.become(wanted("False"))
    await until(lambda: around.ready() == "False")
    seen: list[Node | None] = []
    around.node.subscribe(seen.append)
    with capture_logs() as lines:
        for items in ((first,), ()):
            seen.clear()
            around.node.replace(items, ())
            await until(lambda: seen)
            assert [one.metadata.uid for one in seen if one] == [first.metadata.uid]
        api.admin.patch("nodes", NAME, given_up("True"), subresource="status")
        await until(lambda: around.ready() == "False")  # the first true correction does not wait
    assert [one["fields"] for one in lines] == ["status.conditions[Ready]"]


async def test_versions_of_a_restored_api_server_count_although_they_are_older(
    api: ApiServerDouble, run: Begin
) -> None:
    around = Around(api)
    run(around)
    await until(lambda: around.ready() == "True" and api.watch_count("nodes"))
    restored = around.node.current
    assert restored is not None
    around.node.put(replace(restored, metadata=replace(restored.metadata, resource_version="999999999")))
    around.node.replace((restored,), ())
    await until(lambda: around.node.current == restored)


async def test_the_end_of_an_earlier_node_that_the_watch_reports_late_is_not_that_of_the_present_one(
    api: ApiServerDouble,
) -> None:
    around = Around(api, register_again=True)
    reported: list[str] = []
    around.node.subscribe(lambda node: reported.append(node.metadata.uid if node else ""))
    task = asyncio.create_task(around.node.run())
    async with asyncio.timeout(GUARD_SECONDS):
        await around.node.registered.wait()
        first = around.node.current
        assert first is not None
        api.admin.delete("nodes", NAME)
        around.become(wanted(ready="False"))  # told by the answer: there is no such Node
        await until(lambda: around.ready() == "False" and around.node.registered.is_set())
        around.node.drop(first)
        assert around.node.registered.is_set()
        assert reported[-1] == around.seen()["metadata"]["uid"]
        around.node.drop(around.node.current or first)
        assert reported[-1] == ""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await around.client.close()
    await until(lambda: not connections(api))


async def test_a_node_that_may_not_register_waits_for_someone_who_does(
    api: ApiServerDouble, run: Begin
) -> None:
    around = Around(api, register=False)
    run(around)
    await until(lambda: api.requests.all(user=f"system:node:{NAME}", path=f"/nodes/{NAME}"))
    assert around.seen() == {}
    api.admin.create("nodes", {"metadata": {"name": NAME}})
    await until(lambda: around.ready() == "True")


async def test_a_node_at_rest_sends_nothing(api: ApiServerDouble, run: Begin) -> None:
    around = Around(api)
    run(around)
    await until(
        lambda: around.ready() == "True" and "runtime.kubeletx.io/one" in around.seen()["metadata"]["labels"]
    )
    await until(lambda: api.watch_count("nodes"))
    api.requests.clear()
    around.become(replace(around.now))
    await until(lambda: not around.changed.is_set())
    around.become(wanted("False"))
    await until(lambda: around.ready() == "False")
    sent = [(one.method, one.path) for one in api.requests.all(user=f"system:node:{NAME}")]
    assert sent == [("PATCH", f"/api/v1/nodes/{NAME}/status")], "only the change is sent"


async def test_the_lease_is_made_renewed_and_found_again(api: ApiServerDouble) -> None:
    around = Around(api)
    api.admin.create("nodes", {"metadata": {"name": NAME}})
    around.lease.owned_by(around.seen()["metadata"]["uid"])

    def seen() -> dict[str, Any]:
        found: dict[str, Any] = api.admin.get("leases", NAME, namespace="kube-node-lease")
        return found

    try:
        await around.lease.renew()
        first = seen()
        assert (first["spec"]["holderIdentity"], first["spec"]["leaseDurationSeconds"]) == (NAME, 40)
        assert [one["kind"] for one in first["metadata"]["ownerReferences"]] == ["Node"]
        await around.lease.renew()
        assert seen()["spec"]["renewTime"] > first["spec"]["renewTime"]
        api.admin.delete("leases", NAME, namespace="kube-node-lease")
        with contextlib.suppress(
            Conflict, NotFound
        ):  # servers differ in what they say to a lease that is gone
            await around.lease.renew()
        await around.lease.renew()
        assert seen()["spec"]["holderIdentity"] == NAME
        around.lease.owned_by("")  # its Node was deleted, and the garbage collector deletes the lease
        api.admin.delete("leases", NAME, namespace="kube-node-lease")
        with contextlib.suppress(Conflict, NotFound):
            await around.lease.renew()
        await around.lease.renew()
        assert api.admin.list("leases", "kube-node-lease")["items"] == []
    finally:
        await around.client.close()
        await until(lambda: not connections(api))


async def test_a_clock_that_is_set_back_does_not_make_a_node_look_dead(api: ApiServerDouble) -> None:
    clock = FakeClock()
    client = KubeClient(load_kubeconfig(api.node_kubeconfig(NAME)), clock=clock)
    lease = NodeLease(client, NAME, clock=clock)
    api.admin.create("nodes", {"metadata": {"name": NAME}})
    renewed = []
    try:
        for jump in (0.0, -7200.0, 10.0, 20_000.0):
            clock.jump(jump)
            await lease.renew()
            found = api.admin.get("leases", NAME, namespace="kube-node-lease")
            renewed.append(found["spec"]["renewTime"])
    finally:
        await client.close()
        await until(lambda: not connections(api))
    assert renewed == [
        "2030-01-01T00:00:00.000000Z",
        "2030-01-01T00:00:00.000001Z",  # the controller manager believes only in what grows
        "2030-01-01T00:00:00.000002Z",
        "2030-01-01T03:33:30.000000Z",
    ]


async def test_a_line_that_died_without_a_word_is_left_for_another(
    api: ApiServerDouble, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asyncio.constants, "SSL_SHUTDOWN_TIMEOUT", 1.0)  # of connections that the line holds
    monkeypatch.setattr(requests, "REQUEST_SECONDS", 1.0)  # of a watch that begins while the line is held
    api.admin.create("nodes", {"metadata": {"name": NAME}})
    clock = SystemClock()

    def renewed() -> str:
        leases = api.admin.list("leases", "kube-node-lease")["items"]
        return leases[0]["spec"]["renewTime"] if leases else ""

    with Line(api.url) as line:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", line.url, api.ca_file, api.node_pair(NAME))
        client = KubeClient(load_kubeconfig(kubeconfig), clock=clock)
        lease = NodeLease(client, NAME, clock=clock, duration_seconds=4)
        seen: list[Any] = []
        node = ApiNode(client, NAME, _nothing, clock=clock, policy=NodePolicy())
        node.subscribe(seen.append)
        follow = Reflector(client, NODES, Node, node, clock=clock, field_selector=f"metadata.name={NAME}")
        tasks = [asyncio.create_task(lease.run()), asyncio.create_task(follow.run())]
        try:
            async with asyncio.timeout(GUARD_SECONDS):
                await until(lambda: renewed() and seen and api.watch_count("nodes"))
                line.hold()
                await until(lambda: not line.connections)  # after two renewals nothing of the old is kept
                line.release()
                before, heard = renewed(), len(seen)
                await until(lambda: renewed() > before)
                api.admin.patch("nodes", NAME, {"metadata": {"labels": {"a": "b"}}})
                await until(lambda: len(seen) > heard and seen[-1].metadata.labels.get("a") == "b")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await client.close()


async def _nothing() -> AsyncIterator[Node]:
    await asyncio.Event().wait()
    yield Node()
