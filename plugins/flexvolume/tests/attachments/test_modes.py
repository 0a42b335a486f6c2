"""Access modes of volumes, and facts about nodes and pods, as an API server gives them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from kubeletx_flexvolume.attachments.cluster import ClusterNodes, ClusterPods
from kubeletx_flexvolume.attachments.modes import CACHE_SECONDS, VolumeLookup
from kubeletx_flexvolume.attachments.nodes import SILENT_SECONDS, RecordedNodes
from kubeletx_flexvolume.attachments.proofs import StorageNode
from kubeletx_flexvolume.values import AccessMode

from kubeletx.api import Internal, PermissionDenied, TimedOut, Unavailable
from kubeletx.kube.client import KubeClient, load_kubeconfig
from kubeletx.testing import FakeClock, FakeRecords
from kubeletx_testing.apiserver import ApiServerDouble, volumes
from plugins.flexvolume.tests.attachments.attachment_model import ROX, RWO, RWX, holder, volume
from plugins.flexvolume.tests.attachments.cluster_model import add_node, add_volume, close, set_up


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(auto_advance=True)


@pytest_asyncio.fixture
async def client(api: ApiServerDouble, clock: FakeClock) -> AsyncIterator[KubeClient]:
    """A client with the storage identity."""
    made = KubeClient(load_kubeconfig(set_up(api)), clock=clock)
    yield made
    await close(made)


# --- access modes ---


async def test_modes_are_those_of_the_option_or_else_of_the_volume(
    api: ApiServerDouble, client: KubeClient, clock: FakeClock
) -> None:
    add_volume(api.admin, "pv-1", "ReadWriteOnce", "ReadOnlyMany", claim="data")
    facts = VolumeLookup(client, clock)
    assert await facts.modes(volume("pv-1", RWX)) == (RWX,)
    assert api.requests.all(path="/persistentvolumes/", verb="get") == []
    assert await facts.modes(volume("pv-1")) == (RWO, ROX)
    found = await facts.find("pv-1")
    assert found is not None
    assert found.spec.claim_ref is not None
    assert (found.spec.claim_ref.namespace, found.spec.claim_ref.name) == ("default", "data")


async def test_a_volume_without_an_object_is_of_one_node(client: KubeClient, clock: FakeClock) -> None:
    assert await VolumeLookup(client, clock).modes(volume("inline")) == (RWO,)
    assert await VolumeLookup(None, clock).modes(volume("pv-1")) == (RWO,)


async def test_a_mode_of_a_newer_kubernetes_is_left_out(
    api: ApiServerDouble, client: KubeClient, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volumes, "MODES", (*volumes.MODES, "ReadWriteSometimes"))
    add_volume(api.admin, "pv-1", "ReadWriteSometimes")
    assert await VolumeLookup(client, clock).modes(volume("pv-1")) == (AccessMode.READ_WRITE_ONCE,)


async def test_modes_are_not_guessed_during_an_outage(
    api: ApiServerDouble, client: KubeClient, clock: FakeClock
) -> None:
    facts = VolumeLookup(client, clock)
    add_volume(api.admin, "pv-1", "ReadWriteMany")
    assert await facts.modes(volume("pv-1")) == (RWX,)
    api.stop()
    assert await facts.modes(volume("pv-1")) == (RWX,)
    with pytest.raises(Unavailable, match="access modes of volume pv-2 are not known"):
        await facts.modes(volume("pv-2"))
    clock.advance(CACHE_SECONDS)
    with pytest.raises(Unavailable, match="option accessModes"):
        await facts.modes(volume("pv-1"))


# --- nodes ---


async def test_facts_about_nodes_of_a_cluster(api: ApiServerDouble, client: KubeClient) -> None:
    add_node(api.admin, "n1")
    add_node(api.admin, "n2", "later")
    taint = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
    api.admin.patch("nodes", "n2", {"spec": {"taints": [taint]}})
    status = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    api.admin.patch("nodes", "n2", {"status": status}, subresource="status")
    nodes = ClusterNodes(client)
    uid = api.admin.get("nodes", "n2")["metadata"]["uid"]
    second = StorageNode(name="n2", uid=uid, boot_id="later", out_of_service=True, ready=False)
    assert await nodes.facts("n2") == second
    assert (await nodes.facts("n1")).ready
    assert await nodes.facts("n3") == StorageNode(name="n3", exists=False)
    assert (await nodes.all())["n2"] == second


async def test_the_own_identity_of_a_node_may_not_look(api: ApiServerDouble, clock: FakeClock) -> None:
    set_up(api)
    add_node(api.admin, "n1")
    add_node(api.admin, "n2")
    own = KubeClient(load_kubeconfig(api.node_kubeconfig("n1")), clock=clock)
    assert (await ClusterNodes(own).facts("n1")).exists
    with pytest.raises(PermissionDenied):
        await ClusterNodes(own).facts("n2")
    await close(own)


async def test_an_outage_is_not_an_answer(api: ApiServerDouble, client: KubeClient) -> None:
    api.stop()
    with pytest.raises((Unavailable, TimedOut)):
        await ClusterNodes(client).facts("n1")


async def test_nodes_of_one_machine_report_themselves(clock: FakeClock) -> None:
    records = FakeRecords()
    nodes = RecordedNodes(records, clock)
    with pytest.raises(Unavailable, match="node n1 has no record"):
        await nodes.facts("n1")
    for boot_id in ("first", "second"):
        await nodes.announce("n1", boot_id)
        assert await nodes.facts("n1") == StorageNode(name="n1", boot_id=boot_id, ready=True)
    clock.advance(SILENT_SECONDS)
    assert await nodes.all() == {"n1": StorageNode(name="n1", boot_id="second", ready=False)}


@pytest.mark.parametrize("value", [{}, {"bootID": 5}])
async def test_a_broken_record_of_a_node_is_not_an_answer(clock: FakeClock, value: dict[str, Any]) -> None:
    records = FakeRecords()
    await records.create("n1", value)
    with pytest.raises(Internal, match="record of node n1 cannot be read"):
        await RecordedNodes(records, clock).facts("n1")


# --- pods ---


async def test_a_pod_is_given_up_if_it_is_gone_made_again_or_being_deleted(
    api: ApiServerDouble, client: KubeClient
) -> None:
    pods = ClusterPods(client)
    spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "busybox"}]}
    made = api.admin.create("pods", {"metadata": {"name": "web-0"}, "spec": spec}, "default")
    present = holder(pod="web-0", pod_uid=made["metadata"]["uid"])
    assert not await pods.is_given_up(present)
    assert await pods.is_given_up(holder(pod="web-0", pod_uid="an-earlier-one"))
    assert await pods.is_given_up(holder(pod="gone"))
    api.admin.delete("pods", "web-0", "default")
    assert await pods.is_given_up(present)


@pytest.mark.parametrize(
    ("owner", "is_stateful"),
    [
        ({"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": True}, True),
        ({"apiVersion": "apps/v1", "kind": "StatefulSet", "controller": False}, False),
        ({"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True}, False),
        ({"apiVersion": "example.com/v1", "kind": "StatefulSet", "controller": True}, False),
    ],
)
async def test_pods_of_stateful_sets_are_known_by_their_owner(
    api: ApiServerDouble, client: KubeClient, owner: dict[str, Any], is_stateful: bool
) -> None:
    metadata = {"name": "web-0", "ownerReferences": [{**owner, "name": "web", "uid": "u"}]}
    spec = {"containers": [{"name": "c", "image": "busybox"}]}
    made = api.admin.create("pods", {"metadata": metadata, "spec": spec}, "default")
    pods = ClusterPods(client)
    assert await pods.is_stateful(holder(pod="web-0", pod_uid=made["metadata"]["uid"])) is is_stateful
    assert not await pods.is_stateful(holder(pod="web-0", pod_uid="other"))
