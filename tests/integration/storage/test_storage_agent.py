"""The storage agent on real loop devices, file systems and FUSE, called as a kubelet calls its driver."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from kubeletx_flexvolume.host.status import FILE_NAME, FlexDriverStatus, show_attachments
from kubeletx_flexvolume.values import DRIVER

from kubeletx.api import Table
from tests.integration.storage.storage_agent import MIB, READ_ONLY, XFS, AgentNode, Namespace, finished

KINDS = {
    "ext4": {},
    "ext3": {"kubernetes.io/fsType": "ext3"},
    "xfs": XFS,
    "directory": {"backend": "directory"},
    "fuse": {"backend": "fuse"},
}
DEVICES = ("ext4", "xfs", "fuse")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentNode]:
    """A node whose kubelet also calls its root directory by a link."""
    directory = tmp_path_factory.mktemp("node")
    (directory / "link").symlink_to("kubelet")
    made = AgentNode(directory, options=["--kubelet-root-dir", str(directory / "link")])
    try:
        made.start()
        yield made
    finally:
        made.end()


@pytest.fixture(autouse=True)
def nothing_is_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test ends with a clean node."""
    yield
    if "node" in request.fixturenames:
        request.getfixturevalue("node").becomes_clean()


def write(node: AgentNode, pod: str, name: str, text: str = "kept") -> None:
    with (node.inside(pod, name) / "file").open("w") as file:
        file.write(text)


def read(node: AgentNode, pod: str, name: str) -> str:
    return (node.inside(pod, name) / "file").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_volume_is_made_mounted_and_keeps_its_data(node: AgentNode, kind: str) -> None:
    name = f"pv-{kind}"
    assert node.mount("one", name, **KINDS[kind]).is_success
    (shown,) = [one for one in node.namespace.table() if one.target == str(node.target("one", name))]
    assert kind in ("directory", "fuse") or shown.fs_type == kind
    write(node, "one", name)
    assert node.unmount("one", name).is_success
    node.becomes_clean()
    assert node.mount("two", name, **KINDS[kind]).is_success
    assert read(node, "two", name) == "kept"
    (entry,) = node.entries()
    assert (entry["node"], entry["pod"], entry["status"]) == ("n1", "default/two", "Mounted")
    assert node.unmount("two", name).is_success


def test_the_panel_of_kubeletx_shows_the_attachment(node: AgentNode, tmp_path: Path) -> None:
    status = tmp_path / FILE_NAME
    driver = FlexDriverStatus(name=DRIVER, path=str(node.driver), state="ready")
    status.write_bytes(msgspec.json.encode([driver]))
    assert node.mount("one", "pv-panel").is_success
    shown = show_attachments(status)
    assert isinstance(shown, Table)
    (row,) = shown.rows
    assert (row[:4], row[5]) == (("pv-panel", "n1", "default/one", "ReadWrite"), "Mounted")
    assert node.unmount("one", "pv-panel").is_success


def test_a_mount_leaves_no_trace_outside_the_namespace(node: AgentNode) -> None:
    assert node.mount("one", "pv-hidden").is_success
    assert str(node.root) not in Path("/proc/self/mountinfo").read_text()
    assert list(node.target("one", "pv-hidden").iterdir()) == []
    assert node.unmount("one", "pv-hidden").is_success


@pytest.mark.parametrize("kind", KINDS)
def test_two_pods_of_a_node_share_a_volume_until_the_last_one_ends(node: AgentNode, kind: str) -> None:
    name = f"pv-shared-{kind}"
    calls = []
    for pod in ("one", "two"):
        node.make_target(pod, name)
        options = node.options_text(pod, name, **KINDS[kind])
        calls.append(node.begin("mount", str(node.target(pod, name)), options))
    assert all(finished(one).is_success for one in calls)
    assert len(node.devices()) == (0 if kind == "directory" else 1)
    write(node, "one", name, "shared")
    assert node.unmount("one", name).is_success
    assert read(node, "two", name) == "shared"
    assert len(node.mounts()) == 2  # for the node, and for the second pod
    assert node.unmount("two", name).is_success


@pytest.mark.parametrize("kind", KINDS)
def test_a_read_only_mount_refuses_writes_also_beside_a_writer(node: AgentNode, kind: str) -> None:
    name = f"pv-ro-{kind}"
    assert node.mount("maker", name, **KINDS[kind]).is_success
    write(node, "maker", name)
    assert node.unmount("maker", name).is_success
    assert node.mount("reader", name, **KINDS[kind], **READ_ONLY).is_success
    with pytest.raises(OSError, match="Read-only"):
        write(node, "reader", name, "no")
    assert node.mount("writer", name, **KINDS[kind]).is_success
    write(node, "writer", name, "new")
    assert read(node, "reader", name) == "new"
    with pytest.raises(OSError, match="Read-only"):
        write(node, "reader", name, "no")
    assert node.unmount("writer", name).is_success
    assert read(node, "reader", name) == "new"
    assert node.unmount("reader", name).is_success


def test_a_volume_that_is_only_read_gets_a_read_only_device(node: AgentNode) -> None:
    assert node.mount("maker", "pv-rom").is_success
    write(node, "maker", "pv-rom")
    assert node.unmount("maker", "pv-rom").is_success
    modes = {"accessModes": "ReadOnlyMany"}
    refused = node.mount("one", "pv-rom", **modes)
    assert "is ReadOnlyMany, so no pod can write to it" in refused.message
    for pod in ("one", "two"):
        assert node.mount(pod, "pv-rom", **modes, **READ_ONLY).is_success
        assert read(node, pod, "pv-rom") == "kept"
    (device,) = node.devices()
    assert Path("/sys/block", device.rpartition("/")[2], "ro").read_text().strip() == "1"
    for pod in ("one", "two"):
        assert node.unmount(pod, "pv-rom").is_success


def test_repeated_calls_succeed_and_mount_once(node: AgentNode) -> None:
    for _ in range(3):
        assert node.mount("one", "pv-again").is_success
    assert node.mounts().count(str(node.target("one", "pv-again"))) == 1
    for _ in range(3):
        assert node.call("unmount", str(node.target("one", "pv-again"))).is_success
    assert node.call("unmount", str(node.target("never", "pv-never"))).is_success


def test_mount_options_reach_the_pod(node: AgentNode) -> None:
    assert node.mount("one", "pv-options", mountOptions="noatime,nosuid,noexec").is_success
    (shown,) = [one for one in node.namespace.table() if one.target == str(node.target("one", "pv-options"))]
    assert {"noatime", "nosuid", "noexec"} <= set(shown.options)
    assert node.mount("two", "pv-options", mountOptions="noatime,nosuid,noexec", **READ_ONLY).is_success
    (shown,) = [one for one in node.namespace.table() if one.target == str(node.target("two", "pv-options"))]
    assert {"ro", "noatime", "nosuid", "noexec"} <= set(shown.options)
    for pod in ("one", "two"):
        assert node.unmount(pod, "pv-options").is_success


def test_a_linked_kubelet_root_is_the_same_root(node: AgentNode) -> None:
    node.make_target("one", "pv-link")
    linked = str(node.target("one", "pv-link")).replace(str(node.root), str(node.directory / "link"))
    assert node.call("mount", linked, node.options_text("one", "pv-link")).is_success
    assert str(node.target("one", "pv-link")) in node.mounts()
    assert node.mount("one", "pv-link").is_success  # by the other path: the same mount
    assert node.call("unmount", linked).is_success
    assert node.mounts() == []


def test_a_volume_in_use_is_unmounted_when_it_is_free(node: AgentNode) -> None:
    assert node.mount("one", "pv-busy").is_success
    with (node.inside("one", "pv-busy") / "open").open("w"):
        refused = node.unmount("one", "pv-busy")
        assert not refused.is_success
        assert "target is busy" in refused.message
        assert node.mount("two", "pv-busy").is_success
        write(node, "two", "pv-busy")
    assert node.unmount("one", "pv-busy").is_success
    assert read(node, "two", "pv-busy") == "kept"
    assert node.unmount("two", "pv-busy").is_success


def test_thirty_volumes_at_once_are_mounted_and_unmounted(node: AgentNode) -> None:
    names = [f"pv-many-{number}" for number in range(30)]
    for name in names:
        node.make_target("one", name)
    begun = [
        node.begin("mount", str(node.target("one", name)), node.options_text("one", name)) for name in names
    ]
    assert [one.message for one in map(finished, begun) if not one.is_success] == []
    assert len(node.devices()) == len(node.entries()) == len(names)
    begun = [node.begin("unmount", str(node.target("one", name))) for name in names]
    assert [one.message for one in map(finished, begun) if not one.is_success] == []


def test_the_state_shows_volumes_pods_and_the_handshake(node: AgentNode) -> None:
    assert node.mount("one", "pv-state").is_success
    state = node.status()
    assert state["isReady"]
    assert state["directories"] == [{"path": str(node.plugins), "problem": "", "handshake": "0.1.0"}]
    (volume,) = state["volumes"]
    assert (volume["name"], volume["device"]) == ("pv-state", node.devices()[0])
    assert volume["pods"][0]["isMounted"]
    assert node.unmount("one", "pv-state").is_success


def test_init_reports_capabilities(node: AgentNode) -> None:
    process = node.begin("init")
    output, _ = process.communicate()
    assert json.loads(output) == {
        "status": "Success",
        "capabilities": {
            "attach": False,
            "selinuxRelabel": False,
            "fsGroup": True,
            "supportsMetrics": True,
            "requiresFSResize": True,
            "blockVolumes": True,
        },
        "agentVersion": "0.1.0",
    }
    assert node.call("getvolumename", "{}").status == "Not supported"


def test_a_broken_or_missing_driver_is_installed_again(tmp_path: Path) -> None:
    node = AgentNode(tmp_path)
    try:
        node.start()
        content = node.driver.read_bytes()
        node.stop()
        assert node.driver.read_bytes() == content  # pods keep their volumes, and kubelets their driver
        node.driver.write_text("half")
        node.start()
        assert (node.driver.read_bytes(), stat.S_IMODE(node.driver.stat().st_mode)) == (content, 0o755)
    finally:
        node.end()


def test_the_agent_gives_the_top_directory_to_the_fsgroup_of_each_pod(tmp_path: Path) -> None:
    """Both spellings: that of kubelets from 1.15, and that of older ones and of the specification."""
    node = AgentNode(tmp_path, options=["--fs-group", "top-directory"])
    try:
        node.start()
        for kind in DEVICES:
            name = f"pv-group-{kind}"
            assert node.mount("none", name, **KINDS[kind]).is_success
            groups = {"new": "kubernetes.io/mounterArgs.FsGroup", "old": "kubernetes.io/fsGroup"}
            for number, (pod, key) in enumerate(groups.items(), start=2001):
                assert node.mount(pod, name, **KINDS[kind], **{key: str(number)}).is_success
                found = node.inside(pod, name).stat()
                assert (found.st_gid, found.st_mode & 0o2070) == (number, 0o2070)
            for pod in ("none", *groups):
                assert node.unmount(pod, name).is_success
        node.becomes_clean()
    finally:
        node.end()


def test_the_driver_imports_nothing_that_costs_time(node: AgentNode) -> None:
    """Each call of a kubelet starts an interpreter; modules that are written in Python are most of its time."""
    command = ["/usr/bin/python3", "-I", "-S", "-X", "importtime", str(node.driver), "init"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.split("\n")}
    assert "_socket" in imported
    assert imported & {"json", "os", "pathlib", "re", "site", "socket", "struct", "typing"} == set()


def test_an_expanded_image_is_seen_at_the_next_mount(node: AgentNode) -> None:
    assert node.mount("one", "pv-grown").is_success
    assert node.unmount("one", "pv-grown").is_success
    os.truncate(node.pool / "pv-grown", 32 * MIB)
    assert node.mount("one", "pv-grown").is_success
    device = node.devices()[0].rpartition("/")[2]
    assert int(Path("/sys/block", device, "size").read_text()) * 512 == 32 * MIB
    assert node.unmount("one", "pv-grown").is_success


def test_an_agent_in_a_namespace_of_its_own_mounts_in_that_of_the_kubelet(tmp_path: Path) -> None:
    kubelet = Namespace()
    node = AgentNode(tmp_path, options=["--mount-namespace-of", str(kubelet.pid)])
    try:
        node.start()
        for kind in ("ext4", "directory", "fuse"):
            name = f"pv-far-{kind}"
            assert node.mount("one", name, **KINDS[kind]).is_success
            assert [one.target for one in kubelet.table() if str(node.root) in one.target] == [
                str(node.target("one", name).parents[4] / f"plugins/kubeletx.io/storage/mounts/{name}"),
                str(node.target("one", name)),
            ]
            assert node.mounts() == []
            (kubelet.path(node.target("one", name)) / "file").write_text("kept")
            assert node.mount("two", name, **KINDS[kind], **READ_ONLY).is_success
            assert (kubelet.path(node.target("two", name)) / "file").read_text() == "kept"
            for pod in ("one", "two"):
                assert node.unmount(pod, name).is_success
            assert str(node.root) not in str(kubelet.table())
        node.becomes_clean()
    finally:
        node.end()
        kubelet.end()
