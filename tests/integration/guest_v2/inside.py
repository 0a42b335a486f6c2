"""Tests that run only inside a guest with cgroup v2; test_cgroup_v2.py starts it and names them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kubeletx_quark.cgroups import find_hierarchy
from kubeletx_quark.freezer import Freezer, FreezerState
from kubeletx_quark.reclaim import reclaim

from kubeletx.api import SystemClock
from kubeletx.kube.types.core import Pod
from kubeletx_testing.lab import PrivateAgent, PrivateContainerd, get_tool, pod_manifest, put_manifest
from kubeletx_testing.lab.cgroups import list_container_cgroups, list_container_processes
from tests.integration.support.swap_devices import zram

ROOT = Path("/sys/fs/cgroup")
CLOCK = SystemClock()
ANONYMOUS = 24 << 20
FILE = 16 << 20
FILL = f"""
import os, sys
with open(sys.argv[2], "w") as procs:
    procs.write(str(os.getpid()))
pages = b"a" * {ANONYMOUS}
with open(sys.argv[1], "rb") as file:
    file.read({FILE})
print("filled", flush=True)
while sys.stdin.readline():
    print(len(pages) if pages.count(b"a") == {ANONYMOUS} else "lost", flush=True)
"""
REQUEST = 256 << 20
WAIT_SECONDS = 300
CONFIG = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
memorySwap: {swapBehavior: LimitedSwap}
"""


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A new cgroup with the memory controller."""
    (ROOT / "cgroup.subtree_control").write_text("+memory")
    directory = ROOT / f"kubeletx-{os.getpid()}"
    directory.mkdir()
    yield directory
    directory.rmdir()


@pytest.fixture
def filled(cgroup: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in `cgroup` with 24 MiB of its own and 16 MiB of a file; it answers a line with the size of the former."""
    Path("/proc/sys/vm/drop_caches").write_text(
        "3"
    )  # pages of a file are charged to the cgroup that read it first
    arguments = (FILL, get_tool("qemu-system-x86_64"), str(cgroup / "cgroup.procs"))
    with subprocess.Popen(
        [sys.executable, "-S", "-c", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "filled\n"
        yield child
        child.kill()


def of(cgroup: Path, name: str) -> int:
    """A value of memory.stat."""
    lines = (cgroup / "memory.stat").read_text().splitlines()
    return int(dict(line.split() for line in lines)[name])


def asked(child: subprocess.Popen[str]) -> str:
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdin.write("\n")
    child.stdin.flush()
    return child.stdout.readline().strip()


def test_this_kernel_has_only_cgroup_v2() -> None:
    assert {find_hierarchy(name).version for name in ("freezer", "memory")} == {2}
    assert [line for line in Path("/proc/mounts").read_text().splitlines() if " cgroup " in line] == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
async def test_a_signal_that_nothing_handles_ends_a_process_while_its_cgroup_is_frozen(
    cgroup: Path, filled: subprocess.Popen[str], number: signal.Signals
) -> None:
    freezer = Freezer(cgroup, 2)
    await freezer.freeze(CLOCK)
    filled.send_signal(number)
    assert filled.wait(WAIT_SECONDS) == -number
    assert (cgroup / "cgroup.freeze").read_text() == "1\n"
    await freezer.thaw(CLOCK)


async def test_without_swap_a_reclaim_gives_back_pages_of_files_only(
    cgroup: Path, filled: subprocess.Popen[str], tmp_path: Path
) -> None:
    assert of(cgroup, "file") >= FILE
    freezer = Freezer(cgroup, 2)
    await freezer.freeze(CLOCK)
    given = reclaim(cgroup, 2, tmp_path / "note")
    assert freezer.state() is FreezerState.FROZEN
    assert given.freed_bytes >= FILE // 2
    assert given.swapped_bytes == 0
    assert given.after_bytes >= of(cgroup, "anon") >= ANONYMOUS
    await freezer.thaw(CLOCK)
    assert asked(filled) == str(ANONYMOUS)


async def test_with_swap_a_reclaim_gives_back_all_and_the_process_finds_it_again(
    cgroup: Path, filled: subprocess.Popen[str], tmp_path: Path
) -> None:
    freezer = Freezer(cgroup, 2)
    with zram():
        await freezer.freeze(CLOCK)
        given = reclaim(cgroup, 2, tmp_path / "note")
        assert given.swapped_bytes >= ANONYMOUS // 2
        assert given.freed_bytes >= (ANONYMOUS + FILE) // 2
        await freezer.thaw(CLOCK)
        assert asked(filled) == str(ANONYMOUS)


async def test_a_cgroup_without_a_share_of_swap_gets_one_only_while_it_is_reclaimed(
    cgroup: Path, filled: subprocess.Popen[str], tmp_path: Path
) -> None:
    limit, note = cgroup / "memory.swap.max", tmp_path / "note"
    limit.write_text("0")
    with zram():
        given = reclaim(cgroup, 2, note)
        assert given.swapped_bytes >= ANONYMOUS // 2
        assert limit.read_text() == "0\n"
        assert not note.exists()
        assert asked(filled) == str(ANONYMOUS)


def container_id(pod: Pod) -> str:
    statuses = pod.status.container_statuses
    return (statuses[0].container_id or "").rpartition("/")[2] if statuses else ""


def rests(pod: Pod) -> bool:
    return any(one.type == "kubeletx.io/Standby" and one.status == "True" for one in pod.status.conditions)


def directory_of(pod: Pod) -> Path:
    (directory,) = list_container_cgroups({container_id(pod)})
    return directory


def test_an_agent_makes_qos_cgroups_hibernates_a_pod_and_sees_its_processes_killed(
    make_agent: Callable[..., PrivateAgent], containerd_a: PrivateContainerd, manifests: Path, tmp_path: Path
) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG)
    with zram():
        agent = make_agent(
            endpoints=f"container:quark:{containerd_a.endpoint}?handler=runc",
            flags=("--config", str(config), "--disable-plugin=libvirt", "--disable-plugin=flexvolume"),
        )
        agent.start(timeout_seconds=WAIT_SECONDS)
        needs = {"resources": {"requests": {"memory": str(REQUEST)}, "limits": {"memory": str(2 * REQUEST)}}}
        metadata = {"annotations": {"kubeletx.io/standby": "hibernated"}}
        put_manifest(manifests, pod_manifest("web", runtime="quark", container=needs, metadata=metadata))
        put_manifest(manifests, pod_manifest("plain", runtime="quark"))
        before = agent.wait_for("web", rests, timeout_seconds=WAIT_SECONDS)
        plain = agent.wait_for("plain", timeout_seconds=WAIT_SECONDS)

        for pod, qos, least, most in ((before, "burstable", 1, REQUEST), (plain, "besteffort", 0, 0)):
            directory = directory_of(pod)
            assert directory.parent == ROOT / agent.cgroup_root / "kubepods" / qos / f"pod{pod.metadata.uid}"
            assert (directory / "memory.oom.group").read_text() == "1\n"
            assert least <= int((directory / "memory.swap.max").read_text()) <= most
        assert (directory_of(before) / "memory.max").read_text() == f"{2 * REQUEST}\n"
        assert "frozen 1" in (directory_of(before) / "cgroup.events").read_text()
        assert "frozen 0" in (directory_of(plain) / "cgroup.events").read_text()

        for pid in list_container_processes({container_id(before)}):
            with suppress(ProcessLookupError):  # it ends with the first process of its container
                os.kill(pid, signal.SIGKILL)
        after = agent.wait_for(
            "web",
            lambda pod: rests(pod) and container_id(pod) not in ("", container_id(before)),
            timeout_seconds=WAIT_SECONDS,
        )
        assert after.status.container_statuses[0].restart_count == 1
        assert "frozen 1" in (directory_of(after) / "cgroup.events").read_text()
        for pod, name in ((after, "web"), (plain, "plain")):
            (manifests / f"{name}.json").unlink()
            agent.wait_gone(name, timeout_seconds=WAIT_SECONDS)
            assert not list_container_processes({container_id(pod)})
            assert not list_container_cgroups({container_id(pod)})
