"""The same volumes in a container pod and in a virtual machine: as a shared directory, and as a disk."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.machines import load_machine_image
from tests.integration.storage.pod_storage import StorageNode, parts, storage
from tests.integration.support.bench import Bench
from tests.integration.support.machines import machine_manifest, wait_console
from tests.integration.support.vm_pods import make_machines

BOOT_SECONDS = 200
SIZE = 4 << 20
SCRIPT = """#!/bin/sh
echo "shared $(cat /shared/file)"
echo from-the-guest > /shared/answer
echo "disk $(tr -d '\\0' < /dev/vdb | grep -o disk-data | head -n 1)"
echo "written by the guest" | dd of=/dev/vdb bs=512 seek=8191 conv=notrunc,fsync 2>/dev/null
echo "volumes were seen"
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def node(make_bench: Callable[..., Bench], lab: Lab, tmp_path: Path) -> Iterator[StorageNode]:
    """A node with containers, machines and storage."""
    made = StorageNode(
        make_machines(make_bench, lab, tmp_path, shares="virtiofs"), lab.base_dir / "machines-storage"
    )
    try:
        made.storage.start()
        yield made
    finally:
        made.storage.end()


def test_volumes_of_a_container_pod_are_a_shared_directory_and_a_disk_of_a_machine(node: StorageNode) -> None:
    volumes = (storage("shared"), storage("disk", size=str(SIZE)))
    script = "for one in shared disk; do echo $one-data > /$one/file; done; sync"
    node.run("writer", script, **parts(*volumes, restartPolicy="Never"))
    node.remove("writer")
    machine = {
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}],
        "volumeDevices": [{"name": "disk", "devicePath": "/dev/vdb"}],
        "userData": base64.b64encode(SCRIPT.encode()).decode(),
    }
    image = str(load_machine_image())
    put_manifest(
        node.manifests,
        machine_manifest("guest", image=image, machine=machine, spec={"volumes": list(volumes)}),
    )
    log = wait_console(node.agent, "guest-lab", "volumes were seen", timeout_seconds=BOOT_SECONDS)
    assert "shared shared-data" in log
    assert "disk disk-data" in log
    uid = node.pod("guest").metadata.uid
    device = node.agent.root_dir / f"pods/{uid}/volumeDevices/kubeletx.io~storage/disk"
    assert str(device) in node.storage.mounts()
    assert not [one for one in node.storage.mounts() if one.endswith("/mounts/disk")], (
        "the node has not mounted it"
    )
    node.put("busy", **parts(volumes[1]))
    assert "pods of this node have its device" in node.event("busy", "FailedMount")["message"]
    node.remove("busy", "guest")
    content = (node.storage.pool / "disk").read_bytes()
    assert content[SIZE - 512 :].startswith(b"written by the guest\n")
    script = "cat /shared/answer /disk/file"
    assert node.run("reader", script, **parts(*volumes)).split() == ["from-the-guest", "disk-data"]
    node.remove("reader")
    node.becomes_clean()
