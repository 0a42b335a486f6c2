"""Pods with FlexVolumes: two nodes on one machine, with real containerds, agents of kubeletx and storage agents."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from kubeletx_testing.lab import Lab, put_manifest
from tests.integration.storage.flex_drivers import TMPFS
from tests.integration.storage.pod_storage import STORAGE, StorageNode, parts, storage, third_party
from tests.integration.support.bench import Bench, until
from tests.integration.support.survival import life

HANGS = "example.com/hangs"
HANGS_SCRIPT = """
case "$1" in
init) echo '{"status":"Success","capabilities":{"attach":false}}' ;;
mount) wait_at hang-mount; mount -t tmpfs tmpfs "$2" && echo '{"status":"Success"}' ;;
unmount) wait_at hang-unmount; umount "$2" && echo '{"status":"Success"}' ;;
*) echo '{"status":"Not supported"}' ;;
esac
"""
WAITS = "echo started; trap 'exit 0' TERM; while :; do sleep 0.1; done"

MakeBench = Callable[..., Bench]


@pytest.fixture(scope="module")
def nodes(
    make_bench: MakeBench, lab: Lab, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[StorageNode, StorageNode]]:
    """Two nodes with a containerd each, whose storage agents share a pool and the records."""
    shared = lab.base_dir / "storage"
    made = []
    try:
        for name, containerd in (("n1", "containerd-a"), ("n2", "containerd-b")):
            endpoints = f"container:{containerd}:{lab[containerd].endpoint}"
            bench = make_bench(name=name, node_name=name, endpoints=endpoints)
            made.append(StorageNode(bench, shared))
            made[-1].storage.start()
        yield made[0], made[1]
    finally:
        for one in made:
            one.storage.end()


@pytest.fixture
def node(nodes: tuple[StorageNode, StorageNode]) -> Iterator[StorageNode]:
    """The first node; the test leaves nothing on it."""
    yield nodes[0]
    nodes[0].becomes_clean()


def test_a_volume_moves_to_a_pod_of_another_node_with_its_data(
    nodes: tuple[StorageNode, StorageNode],
) -> None:
    first, second = nodes
    volume = storage("moves")
    first.put("writer", f"echo kept > /moves/file; sync; {WAITS}", **parts(volume))
    first.ready("writer")
    assert first.storage.volumes("writer") == {"moves": "ready"}
    second.put("reader", "cat /moves/file", **parts(volume, restartPolicy="Never"))
    event = second.event("reader", "FailedMount")
    assert "moves" in event["message"]
    assert "default/writer-n1" in event["message"]
    assert "n1" in event["message"]
    assert second.storage.mounts() == []
    assert second.pod("reader").status.phase == "Pending"
    first.remove("writer")
    assert second.ended("reader").status.phase == "Succeeded"
    assert second.logs("reader").strip() == "kept"
    assert first.storage.left() == second.storage.devices(), "the pool is shared; nothing else is there"
    second.remove("reader")
    second.becomes_clean()


def test_a_driver_of_a_third_party_runs_unchanged(node: StorageNode) -> None:
    node.storage.install(TMPFS)
    volume = third_party("memory", TMPFS, size="4194304")
    script = (
        "df -k /memory | tail -1 | awk '{print $1, $2}'; echo x > /memory/file && stat -c %g /memory/file"
    )
    assert node.run("memory", script, **parts(volume, securityContext={"fsGroup": 4242})).split() == [
        "tmpfs",
        "4096",
        "4242",
    ]
    node.remove("memory")


def test_a_static_pod_waits_for_the_secret_of_its_volume(node: StorageNode) -> None:
    volume = storage("secret")
    volume["flexVolume"]["secretRef"] = {"name": "login"}
    node.put("asks", **parts(volume))
    node.event("asks", "FailedMount", 'secret "default/login" not found; create it')
    node.remove("asks")


def test_a_claim_without_a_cluster_is_a_volume_of_the_storage_agent(node: StorageNode) -> None:
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "annotations": {"storage.kubeletx.io/backend": "loop"}},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
            "storageClassName": STORAGE,
        },
    }
    file = put_manifest(node.manifests, claim)
    volume = {"name": "claimed", "persistentVolumeClaim": {"claimName": "data"}}
    assert node.run("claims", "mount | grep -c ' /claimed type ext4 '", **parts(volume)) == "1\n"
    node.remove("claims")
    file.unlink()
    node.becomes_clean()


def test_a_driver_that_hangs_disturbs_neither_logs_nor_other_volumes_nor_other_pods(
    node: StorageNode,
) -> None:
    gates = node.storage
    gates.install(HANGS, HANGS_SCRIPT)
    gates.close_gate("hang-mount")
    gates.close_gate("hang-unmount")
    volumes = (third_party("hangs", HANGS), storage("beside"))
    script = "echo started; until [ -e /beside/end ]; do sleep 0.1; done"
    node.put("stuck", script, **parts(*volumes, restartPolicy="Never"))
    gates.wait_at("hang-mount")
    until(
        lambda: gates.volumes("stuck") == {"hangs": "preparing", "beside": "ready"},
        "the other volume is ready",
    )
    assert node.run("other", "echo y > /other/file && echo wrote", **parts(storage("other"))) == "wrote\n"
    node.remove("other")
    gates.open_gate("hang-mount")
    pod = node.ready("stuck")
    place = node.agent.root_dir / f"pods/{pod.metadata.uid}/volumes/kubeletx.io~storage/beside"
    (place / "end").touch()
    gates.wait_at("hang-unmount")
    until(lambda: gates.volumes("stuck") == {"hangs": "releasing"}, "the other volume is released")
    assert str(place) not in gates.mounts()
    assert node.logs("stuck") == "started\n"
    gates.open_gate("hang-unmount")
    node.remove("stuck")


def test_a_kill_of_kubeletx_at_any_call_of_the_driver_leaves_nothing_and_loses_nothing(
    node: StorageNode,
) -> None:
    gates = node.storage
    volume = storage("killed")
    lives = []
    for gate in ("before-mount", "after-mount"):  # the second time it is another pod of this name
        gates.close_gate(gate)
        node.put("killed", f"echo x >> /killed/file; {WAITS}", **parts(volume))
        gates.wait_at(gate)
        node.agent.kill()
        gates.open_gate(gate)
        node.agent.start()
        lives.append(life(node.ready("killed")))
        assert [one for one in gates.mounts() if "/pods/" in one] == [
            f"{node.agent.root_dir}/pods/{node.pod('killed').metadata.uid}/volumes/kubeletx.io~storage/killed"
        ]
        assert gates.entries() == ["n1 default/killed-n1"]
        assert len(gates.devices()) == 1
        leaving = "before-unmount" if gate == "before-mount" else "after-unmount"
        gates.close_gate(leaving)
        node.withdraw("killed")
        gates.wait_at(leaving)
        node.agent.kill()
        gates.open_gate(leaving)
        node.agent.start()
        node.becomes_clean()
    assert lives[0] != lives[1]
    found = node.run("looks", "cat /killed/file", **parts(volume))
    assert found.split() == ["x", "x"]
    node.remove("looks")
