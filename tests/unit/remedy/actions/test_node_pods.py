"""Built-in methods storage-fence and end-pods."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.attachments import definitions

from kubeletx.kube.text.yaml import parse_documents
from kubeletx.remedy.actions.builtin import BuiltinMethods
from kubeletx.remedy.model import FenceProof, MethodResult, RemedyOutcome, RemedySettings
from kubeletx.remedy.release import PodRelease
from kubeletx_testing.waiting import until
from tests.unit.remedy.actions.remedy_cluster import NODE, RemedyCluster

ATTACHMENTS = "/apis/storage.kubeletx.io/v1alpha1/volumeattachments"


async def _run(cluster: RemedyCluster, name: str, **settings: Any) -> RemedyOutcome:
    release = PodRelease(cluster.client, cluster.clock, RemedySettings, lambda: True)
    return await BuiltinMethods(cluster.client, release).run(
        cluster.task(name=name, kind="builtin", **settings)
    )


def _install(cluster: RemedyCluster) -> None:
    crds = Path(definitions.__file__).with_name("crds.yaml").read_text()
    for document in parse_documents(crds):
        cluster.admin.create("customresourcedefinitions", document)


def _attach(cluster: RemedyCluster, volume: str, *holders: tuple[str, str]) -> None:
    """Add the record of a volume. `holders`: node and access mode of each entry."""
    entries = [
        {
            "node": node,
            "bootID": "boot 1",
            "podNamespace": "default",
            "pod": "web-0",
            "podUID": "uid",
            "mountDir": f"/mnt/{node}",
            "volumeName": volume,
            "modes": [mode],
        }
        for node, mode in holders
    ]
    body = {
        "apiVersion": "storage.kubeletx.io/v1alpha1",
        "kind": "VolumeAttachment",
        "metadata": {"name": volume},
        "spec": {"attachments": entries},
    }
    reply = cluster.admin.send("POST", ATTACHMENTS, body)
    assert reply.code == 201, reply


async def test_volumes_that_the_node_holds_alone_are_fenced_by_their_records(cluster: RemedyCluster) -> None:
    _install(cluster)
    _attach(cluster, "pv-own", (NODE, "ReadWriteOnce"))
    _attach(cluster, "pv-shared", (NODE, "ReadWriteMany"), ("other", "ReadWriteMany"))
    _attach(cluster, "pv-other", ("other", "ReadWriteOnce"))
    outcome = await _run(cluster, "storage-fence")
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, (FenceProof.STORAGE,))
    assert outcome.storage == ("pv-own",)
    assert "shared and not fenced: pv-shared" in outcome.message


@pytest.mark.parametrize("installed", [True, False])
async def test_without_records_of_the_node_nothing_is_proven(cluster: RemedyCluster, installed: bool) -> None:
    if installed:
        _install(cluster)
        _attach(cluster, "pv-shared", (NODE, "ReadWriteMany"))
    outcome = await _run(cluster, "storage-fence")
    assert (outcome.result, outcome.proofs, outcome.storage) == (MethodResult.FAILED, (), ())
    assert "configure a fence agent" in outcome.message


def _add_pod(cluster: RemedyCluster, name: str, node: str = NODE) -> None:
    spec = {"nodeName": node, "containers": [{"name": "main", "image": "busybox"}]}
    cluster.admin.create("pods", {"metadata": {"name": name}, "spec": spec}, "default")


def _pods(cluster: RemedyCluster) -> dict[str, bool]:
    """Return for each pod whether it is asked to end."""
    items = cluster.admin.list("pods", "default")["items"]
    return {item["metadata"]["name"]: "deletionTimestamp" in item["metadata"] for item in items}


async def test_end_pods_is_done_when_the_agent_has_confirmed_each_end(cluster: RemedyCluster) -> None:
    _add_pod(cluster, "web-0")
    _add_pod(cluster, "web-1", "other")
    running = cluster.start(_run(cluster, "end-pods"))
    await until(lambda: _pods(cluster) == {"web-0": True, "web-1": False})
    assert not running.done()
    cluster.admin.delete("pods", "web-0", "default", gracePeriodSeconds=0)  # as the agent does
    outcome = await running
    assert (outcome.result, outcome.proofs) == (MethodResult.DONE, ())
    assert outcome.message == "the agent has ended 1 pods"


async def test_end_pods_fails_at_its_deadline_and_no_pod_is_lost(cluster: RemedyCluster) -> None:
    _add_pod(cluster, "web-0")
    outcome = await _run(cluster, "end-pods", seconds=0.01)
    assert (outcome.result, outcome.proofs) == (MethodResult.FAILED, ())
    assert _pods(cluster) == {"web-0": True}
