"""Two nodes with one pool and one file of records: a volume moves only when its holder is gone, with its data."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.storage.storage_agent import AgentNode


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[tuple[AgentNode, AgentNode]]:
    """Nodes n1 and n2, whose agents run. Loop devices of this kernel stand for those of two machines."""
    pool, records = tmp_path / "pool", tmp_path / "records.db"
    made = [
        AgentNode(tmp_path / name, name, pool=pool, records=records, boot_id=f"{name}-boot-1")
        for name in ("n1", "n2")
    ]
    try:
        for one in made:
            one.start()
        yield made[0], made[1]
    finally:
        for one in made:
            one.end()


def write(node: AgentNode, text: str, pod: str = "one", name: str = "pv-1") -> None:
    with (node.inside(pod, name) / "file").open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read(node: AgentNode, pod: str = "one", name: str = "pv-1") -> str:
    return (node.inside(pod, name) / "file").read_text()


def release(node: AgentNode, name: str = "pv-1") -> None:
    """Remove a node's entry as an administrator does who knows that the node is off."""
    program = [sys.executable, "-m", "kubeletx_flexvolume.agent.main", "release", name]
    options = ["--node", node.name, "--records", str(node.records), "--yes"]
    subprocess.run([*program, *options], check=True, capture_output=True)


def holders(node: AgentNode) -> list[tuple[str, str]]:
    return [(one["node"], one["pod"]) for one in node.entries()]


def test_a_volume_moves_after_its_unmount_and_not_before(nodes: tuple[AgentNode, AgentNode]) -> None:
    n1, n2 = nodes
    assert n1.mount("one", "pv-1").is_success
    write(n1, "from n1")
    for _ in range(2):
        refused = n2.mount("one", "pv-1")
        assert not refused.is_success
        assert "volume pv-1 (ReadWriteOnce) is attached for pod default/one on node n1" in refused.message
        assert "its node is ready" in refused.message
    assert n2.mounts() == []
    assert read(n1) == "from n1"
    assert n1.unmount("one", "pv-1").is_success
    n1.becomes_clean()
    assert n2.mount("one", "pv-1").is_success
    assert read(n2) == "from n1"
    write(n2, "from n2")
    assert n2.unmount("one", "pv-1").is_success
    n2.becomes_clean()
    assert n1.mount("one", "pv-1").is_success
    assert read(n1) == "from n2"
    assert n1.unmount("one", "pv-1").is_success
    n1.becomes_clean()


def test_a_killed_agent_keeps_its_volumes_until_its_node_has_restarted(
    nodes: tuple[AgentNode, AgentNode],
) -> None:
    """A dead agent proves nothing: its pods may write. Another boot ID proves that they have ended."""
    n1, n2 = nodes
    assert n1.mount("one", "pv-1").is_success
    write(n1, "from n1")
    n1.kill()
    write(n1, "also from n1")  # its pod runs on
    assert "on node n1" in n2.mount("two", "pv-1").message
    n1.reboot("n1-boot-2")
    assert "on node n1" in n2.mount("two", "pv-1").message  # not reported yet
    n1.start()
    n1.becomes_clean()
    assert n2.mount("two", "pv-1").is_success
    assert read(n2, "two") == "also from n1"
    assert holders(n2) == [("n2", "default/two")]
    assert "on node n2" in n1.mount("one", "pv-1").message
    assert n2.unmount("two", "pv-1").is_success
    n2.becomes_clean()


def test_an_entry_of_an_earlier_boot_is_broken_with_the_reason_in_the_record(
    nodes: tuple[AgentNode, AgentNode],
) -> None:
    """The restarted node has lost its state directory, too, so that it does not know of the volume."""
    n1, n2 = nodes
    assert n1.mount("one", "pv-1").is_success
    write(n1, "from n1")
    n1.reboot("n1-boot-2")
    for one in (n1.state / "volumes").iterdir():
        one.unlink()
    n1.start()
    n1.kill()  # up to a minute after its start it removes the entry itself
    assert n2.mount("two", "pv-1").is_success
    assert read(n2, "two") == "from n1"
    (entry,) = n2.entries()
    assert entry["node"] == "n2"
    assert "pod default/one on node n1: node n1 has restarted since" in entry["reason"]
    assert n2.unmount("two", "pv-1").is_success
    n2.becomes_clean()


def test_a_node_whose_lock_was_broken_unmounts_before_it_serves(nodes: tuple[AgentNode, AgentNode]) -> None:
    """n1 was only cut off: its pod still has the volume when an administrator removes the entry.

    Backend fuse: the daemon of n1 has the image locked, so that n2 cannot use it before that has ended.
    """
    n1, n2 = nodes
    fuse = {"backend": "fuse"}
    assert n1.mount("one", "pv-1", **fuse).is_success
    write(n1, "from n1")
    n1.kill()
    release(n1)
    refused = n2.mount("two", "pv-1", **fuse)
    assert not refused.is_success
    assert "another process of this machine serves" in refused.message
    assert read(n1) == "from n1"
    n1.start()  # works off its garbage list first
    n1.becomes_clean()
    assert "Removed a volume from this node" in n1.agent.log_tail()
    assert n2.mount("two", "pv-1", **fuse).is_success
    assert read(n2, "two") == "from n1"
    assert n2.unmount("two", "pv-1").is_success
    n2.becomes_clean()


def test_a_volume_for_many_writers_is_on_both_nodes(nodes: tuple[AgentNode, AgentNode]) -> None:
    n1, _ = nodes
    directory = {"backend": "directory", "accessModes": "ReadWriteMany"}
    for node in nodes:
        assert node.mount("one", "pv-many", **directory).is_success
        write(node, f"from {node.name}", name="pv-many")
    assert read(n1, name="pv-many") == "from n2"
    assert sorted(holders(n1)) == [("n1", "default/one"), ("n2", "default/one")]
    for node in nodes:
        assert node.unmount("one", "pv-many").is_success
        node.becomes_clean()


def test_one_pod_of_readwriteoncepod_excludes_others_on_its_own_node(
    nodes: tuple[AgentNode, AgentNode],
) -> None:
    n1, _ = nodes
    modes = {"accessModes": "ReadWriteOncePod"}
    assert n1.mount("one", "pv-pod", **modes).is_success
    refused = n1.mount("two", "pv-pod", **modes)
    assert "is attached for pod default/one on node n1" in refused.message
    assert n1.unmount("one", "pv-pod").is_success
    n1.becomes_clean()
    assert n1.mount("two", "pv-pod", **modes).is_success
    assert n1.unmount("two", "pv-pod").is_success
    n1.becomes_clean()


def test_two_nodes_that_want_a_volume_at_the_same_moment_never_both_get_it(
    nodes: tuple[AgentNode, AgentNode],
) -> None:
    for number in range(6):
        name = f"pv-race-{number}"
        begun = []
        for node in nodes:
            node.make_target("one", name)
            begun.append(node.begin("mount", str(node.target("one", name)), node.options_text("one", name)))
        codes = [one.communicate() and one.returncode for one in begun]
        assert sorted(codes) == [0, 1]
        winner = nodes[codes.index(0)]
        assert [one.mounts() != [] for one in nodes] == [one is winner for one in nodes]
        assert winner.unmount("one", name).is_success
        winner.becomes_clean()
