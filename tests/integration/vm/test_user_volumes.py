"""Volumes of machines whose emulators are not root: what they may read is read, and what is closed to them is named."""

from __future__ import annotations

import base64
import json
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import Lab, PrivateAgent, put_manifest
from kubeletx_testing.lab.disk import LoopDevice
from kubeletx_testing.lab.libvirt import PrivateLibvirtd
from kubeletx_testing.lab.machines import SHARING_KERNELS, load_machine_image
from kubeletx_testing.lab.mounts import make_shared
from tests.integration.support.bench import until
from tests.integration.support.machines import machine_agent, machine_manifest, wait_console

USER = "libvirt-qemu"
MIB = 1 << 20
SMALL = {"limits": {"cpu": "1", "memory": "192Mi"}, "requests": {"cpu": "10m"}}
BOOT_SECONDS = 200
SCRIPT = """#!/bin/sh
echo "config $(cat /config/labels)"
echo "shared $(cat /shared/hello) $(cat /etc/one.conf)"
echo no 2>/dev/null > /config/answer || echo "config is read-only"
echo from-the-guest > /scratch/answer && echo "scratch $(cat /scratch/answer)"
echo no 2>/dev/null > /shared/answer || echo "shared is not ours to write"
echo "device $(head -c 9 /dev/vdb)"
echo "written by the guest" | dd of=/dev/vdb bs=512 seek=1 conv=notrunc,fsync 2>/dev/null
echo "volumes were seen"
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def libvirtd(lab: Lab) -> Iterator[PrivateLibvirtd]:
    """Not started: it has to come after the mount below which the agent makes its own."""
    one = PrivateLibvirtd(lab.base_dir, name="lv-volumes", user=USER)
    yield one
    one.end()


@pytest.fixture
def start(
    lab: Lab, libvirtd: PrivateLibvirtd, make_agent: Callable[..., PrivateAgent]
) -> Callable[[str], PrivateAgent]:
    """Starts libvirtd and an agent with this way of sharing directories."""

    def begin(shares: str) -> PrivateAgent:
        agent = machine_agent(lab, make_agent, endpoints=libvirtd.endpoint, shares=shares)
        agent.root_dir.mkdir(mode=0o700)
        make_shared(agent.root_dir)
        libvirtd.start()
        agent.start()
        return agent

    return begin


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    """A block device of 8 MiB."""
    file = tmp_path / "device"
    file.write_bytes(b"from node".ljust(8 * MIB, b"\0"))
    with LoopDevice(file) as one:
        yield one


def mounts() -> list[dict[str, Any]]:
    return [
        {"name": "config", "mountPath": "/config", "readOnly": True},
        {"name": "scratch", "mountPath": "/scratch"},
        {"name": "shared", "mountPath": "/shared"},
        {"name": "one", "mountPath": "/etc/one.conf", "readOnly": True},
    ]


def volumes(shared: Path) -> list[dict[str, Any]]:
    """A directory that the agent fills from the pod (as it does config maps), an empty one, one of the node, and a file."""
    label = {"path": "labels", "fieldRef": {"fieldPath": "metadata.labels['greets']"}}
    return [
        {"name": "config", "downwardAPI": {"items": [label]}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "shared", "hostPath": {"path": str(shared)}},
        {"name": "one", "hostPath": {"path": str(shared.with_name("one.conf")), "type": "File"}},
    ]


def is_reported(agent: PrivateAgent, words: str) -> str:
    """The message of the first event that holds these words."""
    events = json.loads(agent.get("/v1/events"))["items"]
    return next((one["message"] for one in events if words in one["message"]), "")


@pytest.mark.parametrize("shares", ["9p", "virtiofs"])
def test_volumes_reach_the_guest_of_an_emulator_that_is_not_root(
    shares: str,
    start: Callable[[str], PrivateAgent],
    libvirtd: PrivateLibvirtd,
    device: LoopDevice,
    manifests: Path,
    tmp_path: Path,
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "hello").write_text("hello\n")
    (tmp_path / "one.conf").write_text("one=1\n")
    agent = start(shares)
    disk = {"name": "disk", "hostPath": {"path": str(device.path), "type": "BlockDevice"}}
    machine = {
        "resources": SMALL,
        "volumeMounts": mounts(),
        "volumeDevices": [{"name": "disk", "devicePath": "/dev/vdb"}],
        "userData": base64.b64encode(SCRIPT.encode()).decode(),
    }
    put_manifest(
        manifests,
        machine_manifest(
            "volumes",
            image=str(load_machine_image(kernel=SHARING_KERNELS[shares])),
            machine=machine,
            spec={"volumes": [*volumes(shared), disk]},
            metadata={"labels": {"greets": "everybody"}},
        ),
    )
    log = wait_console(agent, "volumes-lab", "volumes were seen", timeout_seconds=BOOT_SECONDS)
    assert "config everybody" in log
    assert "shared hello one=1" in log
    assert "config is read-only" in log
    assert "scratch from-the-guest" in log
    assert ("shared is not ours to write" in log) is (shares == "9p")
    assert "device from node" in log
    (emulator,) = libvirtd.emulators()
    assert Path(f"/proc/{emulator}").stat().st_uid == pwd.getpwnam(USER).pw_uid
    (manifests / "volumes.json").unlink()
    agent.wait_gone("volumes", timeout_seconds=60)
    with device.path.open("rb") as content:
        assert content.read(1024)[512:].startswith(b"written by the guest\n")
    assert device.path.stat().st_uid == 0
    shares = f"{agent.root_dir}/runtimes"
    assert [line for line in Path("/proc/mounts").read_text().splitlines() if shares in line] == []


def test_a_directory_that_is_closed_to_the_emulators_user_is_named(
    start: Callable[[str], PrivateAgent], manifests: Path, tmp_path: Path
) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (tmp_path / "one.conf").touch()
    agent = start("9p")
    machine = {"resources": SMALL, "volumeMounts": mounts()}
    put_manifest(manifests, machine_manifest("closed", machine=machine, spec={"volumes": volumes(closed)}))
    reported = until(lambda: is_reported(agent, str(closed)), "the directory's name", seconds=150)
    assert "volume shared at /shared" in reported
    assert f"setfacl -m g:{pwd.getpwnam(USER).pw_gid}:rx {closed}" in reported
    (manifests / "closed.json").unlink()
    agent.wait_gone("closed", timeout_seconds=60)
