"""Storage that fails or hangs under a running agent: other volumes are not affected, and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab.process import process_state
from kubeletx_testing.waiting import block_until
from tests.integration.storage.storage_agent import MIB, AgentNode, finished

FUSE = {"backend": "fuse"}
SMALL = {"pool": "small"}
SLOW_FORMAT = """#!/bin/sh
while [ -e {gate} ]; do sleep 0.01; done
exec /usr/sbin/mkfs.ext4 "$@"
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[AgentNode]:
    """A node with short deadlines, a pool on a small tmpfs, and a mkfs that waits while a file exists."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "mkfs.ext4").write_text(SLOW_FORMAT.format(gate=tmp_path / "gate"))
    (programs / "mkfs.ext4").chmod(0o755)
    small = tmp_path / "small"
    small.mkdir()
    made = AgentNode(
        tmp_path,
        options=["--pool", f"small={small}", "--mount-timeout", "2", "--unmount-timeout", "2"],
        environment={"PATH": f"{programs}:{os.environ['PATH']}"},
    )
    try:
        made.namespace.run("mount", "-t", "tmpfs", "-o", "size=4M", "tmpfs", str(small))
        made.start()
        yield made
    finally:
        (tmp_path / "gate").unlink(missing_ok=True)
        for pid in made.daemons():
            os.kill(pid, signal.SIGCONT)
        made.end()


def write(node: AgentNode, name: str, text: str = "kept", pod: str = "one") -> None:
    with (node.inside(pod, name) / "file").open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def read(node: AgentNode, name: str, pod: str = "one") -> str:
    return (node.inside(pod, name) / "file").read_text()


def write_until_it_fails(node: AgentNode, name: str) -> None:
    for number in range(1000):
        write(node, name, f"lost {number}")


def fill(path: Path, size: int) -> None:
    """Write random bytes through to the disk, in small pieces, so that the last free block is used."""
    with path.open("wb", buffering=0) as file:
        for _ in range(size // 4096):
            file.write(os.urandom(4096))
        os.fsync(file.fileno())


def other_volumes_work(node: AgentNode) -> None:
    for kind in ({}, FUSE, {"backend": "directory"}):
        assert node.mount("other", "pv-other", **kind).is_success
        write(node, "pv-other", pod="other")
        assert node.unmount("other", "pv-other").is_success
        block_until(lambda: "pv-other.json" not in node.journals())
        image = node.pool / "pv-other"
        (shutil.rmtree if image.is_dir() else os.unlink)(image)


def test_a_pool_that_is_full_fails_writes_of_its_volumes_only(node: AgentNode) -> None:
    assert node.mount("one", "pv-full", **SMALL).is_success
    write(node, "pv-full")
    with pytest.raises(OSError, match=r"No space|Input/output"):
        fill(node.inside("one", "pv-full") / "big", 12 * MIB)
    other_volumes_work(node)
    assert node.unmount("one", "pv-full").is_success
    node.becomes_clean()


def test_a_format_without_space_fails_and_succeeds_when_there_is_some(node: AgentNode) -> None:
    full = node.namespace.path(node.directory / "small") / "ballast"
    with pytest.raises(OSError, match="No space"):
        fill(full, 5 * MIB)
    reply = node.mount("one", "pv-small", **SMALL)
    assert not reply.is_success
    assert "mkfs.ext4" in reply.message or "No space" in reply.message
    node.becomes_clean()
    full.unlink()
    assert node.mount("one", "pv-small", **SMALL).is_success
    assert node.unmount("one", "pv-small").is_success
    node.becomes_clean()


def test_a_state_directory_that_is_full_refuses_mounts_and_allows_unmounts(tmp_path: Path) -> None:
    node = AgentNode(tmp_path)
    node.state.mkdir()
    try:
        node.namespace.run("mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", str(node.state))
        node.start()
        assert node.mount("one", "pv-1").is_success
        write(node, "pv-1")
        ballast = node.namespace.path(node.state) / "ballast"
        with pytest.raises(OSError, match="No space"):
            fill(ballast, 2 * MIB)
        refused = node.mount("one", "pv-2")
        assert (
            "its journal cannot be written: No space left on device; check the state directory"
            in refused.message
        )
        assert node.unmount("one", "pv-1").is_success
        assert (node.mounts(), node.devices()) == ([], [])
        ballast.unlink()
        node.becomes_clean()
        assert node.mount("one", "pv-1").is_success
        assert read(node, "pv-1") == "kept"
        assert node.unmount("one", "pv-1").is_success
        node.becomes_clean()
    finally:
        node.end()


def test_a_killed_fuse_daemon_costs_its_own_volume_only(node: AgentNode) -> None:
    assert node.mount("one", "pv-dead", **FUSE).is_success
    write(node, "pv-dead")
    (daemon,) = node.daemons()
    os.kill(daemon, signal.SIGKILL)
    block_until(lambda: not node.daemons())
    with pytest.raises(OSError, match=r"Input/output|Read-only"):
        write_until_it_fails(node, "pv-dead")
    other_volumes_work(node)
    refused = node.mount("two", "pv-dead", **FUSE)
    assert refused.is_success or "pv-dead" in refused.message
    for pod in ("one", "two"):
        assert node.unmount(pod, "pv-dead").is_success
    node.becomes_clean()
    assert node.mount("one", "pv-dead", **FUSE).is_success
    assert read(node, "pv-dead") == "kept"
    assert node.unmount("one", "pv-dead").is_success
    node.becomes_clean()


def hang(node: AgentNode, name: str) -> tuple[int, threading.Thread]:
    """Stop the daemon of a volume with a write under way; return the daemon and the writer."""
    assert node.mount("one", name, **FUSE).is_success
    write(node, name)
    (daemon,) = node.daemons()
    os.kill(daemon, signal.SIGSTOP)
    block_until(lambda: process_state(daemon) == "T")

    def writing() -> None:
        with pytest.raises(OSError, match=r"Input/output|Read-only"):
            write(node, f"{name}", "never written")

    thread = threading.Thread(target=writing, name="pod")
    thread.start()
    return daemon, thread


def test_a_hung_fuse_daemon_is_survived_and_its_volume_dropped_by_force(node: AgentNode) -> None:
    """The record of the volume was broken meanwhile, so that the node must get rid of it at any price."""
    _, pod = hang(node, "pv-hung")
    try:
        other_volumes_work(node)
        command = [sys.executable, "-m", "kubeletx_flexvolume.agent.main", "release", "pv-hung"]
        subprocess.run(
            [*command, "--node", "n1", "--records", str(node.records), "--yes"],
            check=True,
            capture_output=True,
        )
        node.kill()
        node.start()  # works off the garbage list before it serves
        block_until(lambda: not pod.is_alive())
        node.becomes_clean()
    finally:
        for pid in node.daemons():
            os.kill(pid, signal.SIGKILL)
        pod.join()
    assert node.mount("one", "pv-hung", **FUSE).is_success
    assert read(node, "pv-hung") in ("kept", "")  # the pod's own write had begun to replace the file
    assert node.unmount("one", "pv-hung").is_success
    node.becomes_clean()


def test_a_fuse_daemon_that_continues_is_unmounted_by_a_repeated_call(node: AgentNode) -> None:
    assert node.mount("one", "pv-slow", **FUSE).is_success
    (node.inside("one", "pv-slow") / "file").write_text("in the cache")
    (daemon,) = node.daemons()
    os.kill(daemon, signal.SIGSTOP)
    refused = node.call("unmount", str(node.target("one", "pv-slow")))
    assert not refused.is_success
    other_volumes_work(node)
    os.kill(daemon, signal.SIGCONT)
    block_until(lambda: node.unmount("one", "pv-slow").is_success)
    node.becomes_clean()
    assert node.mount("one", "pv-slow", **FUSE).is_success
    assert read(node, "pv-slow") == "in the cache"
    assert node.unmount("one", "pv-slow").is_success
    node.becomes_clean()


def test_a_format_that_outlives_its_agent_keeps_the_volume_locked(node: AgentNode) -> None:
    gate = node.directory / "gate"
    gate.touch()
    node.make_target("one", "pv-long")
    begun = node.begin("mount", str(node.target("one", "pv-long")), node.options_text("one", "pv-long"))
    block_until(lambda: format_pid(node))
    pid = format_pid(node)
    node.kill()
    assert not finished(begun).is_success
    node.start()
    assert format_pid(node) == pid
    refused = node.mount("one", "pv-long")
    assert not refused.is_success
    assert f"volume pv-long is locked by PID {pid} (" in refused.message
    assert node.mount("other", "pv-free", backend="directory").is_success
    assert node.unmount("other", "pv-free").is_success
    gate.unlink()
    block_until(lambda: node.mount("one", "pv-long").is_success)
    write(node, "pv-long")
    assert node.unmount("one", "pv-long").is_success
    node.becomes_clean()


def test_a_mount_over_its_deadline_is_completed_by_a_repeated_call(node: AgentNode) -> None:
    gate = node.directory / "gate"
    gate.touch()
    reply = node.mount("one", "pv-late")
    assert not reply.is_success
    assert "still formatting it; the mount took more than 2 s; repeat it" in reply.message
    assert node.mounts() == []
    gate.unlink()
    block_until(lambda: node.mount("one", "pv-late").is_success)
    assert node.unmount("one", "pv-late").is_success
    node.becomes_clean()


def format_pid(node: AgentNode) -> int:
    """Return the PID of the mkfs that waits; 0 if none does. Its own children, which are forks of it first, are younger."""
    pids = []
    for one in Path("/proc").glob("[0-9]*"):
        try:
            line = (one / "cmdline").read_bytes()
        except OSError:  # it has ended
            continue
        if os.fsencode(node.directory / "programs" / "mkfs.ext4") in line:
            pids.append(int(one.name))
    return min(pids, default=0)


def test_damaged_records_are_set_aside_and_the_volumes_entered_again(node: AgentNode) -> None:
    for name in ("pv-1", "pv-2"):
        assert node.mount("one", name).is_success
        write(node, name)
    before = [(one["volume"], one["pod"], one["device"]) for one in node.entries()]
    node.kill()
    node.records.with_name("records.db-wal").unlink()  # it has good copies of all pages
    node.records.write_bytes(b"no database " * 1000)
    node.start()
    assert "Set damaged records aside" in node.agent.log_tail()
    assert node.records.with_name("records.db.damaged").read_bytes().startswith(b"no database")
    assert [(one["volume"], one["pod"], one["device"]) for one in node.entries()] == before
    for name in ("pv-1", "pv-2"):
        assert read(node, name) == "kept"
        assert "its image is attached as volume" in node.mount("two", "other", image=name).message
        assert node.unmount("one", name).is_success
    node.becomes_clean()


def test_a_storage_daemon_without_a_journal_is_ended_at_the_next_start(node: AgentNode) -> None:
    assert node.mount("one", "pv-fuse", **FUSE).is_success
    node.kill()
    for path in reversed(node.mounts()):
        node.namespace.run("umount", path)
    for device in node.devices():
        subprocess.run(["losetup", "--detach", device], check=True)
    for path in (*node.state.glob("volumes/*"), node.state / "fuse" / "pv-fuse" / "daemon.pid"):
        path.unlink()
    assert node.daemons() != []
    node.start()
    assert node.daemons() == []
    assert list((node.state / "fuse").iterdir()) == []
    assert node.mount("two", "pv-fuse", **FUSE).is_success
    assert node.unmount("two", "pv-fuse").is_success


def test_the_directories_of_the_agent_are_its_own_whatever_the_umask_is(node: AgentNode) -> None:
    node.stop()
    shutil.rmtree(node.driver.parent)
    before = os.umask(0)
    try:
        node.start()
    finally:
        os.umask(before)
    found = [node.driver.parent, *node.plugins.rglob("*"), *node.state.rglob("*")]
    assert [str(path) for path in found if path.stat().st_mode & 0o022 and not path.is_socket()] == []
