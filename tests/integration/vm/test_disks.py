"""What becomes of machines' disks: which data is kept, and how block volumes look from inside.

All tests share one agent. Most machines only count their starts on their disk; one boots Linux.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx_testing.lab import Lab, put_manifest
from kubeletx_testing.lab.disk import LoopDevice
from kubeletx_testing.lab.machines import load_machine_image
from kubeletx_testing.lab.tiny_machine import make_counting_machine_image
from tests.integration.support.bench import Bench, restarts
from tests.integration.support.machines import emulators, machine_manifest, wait_console
from tests.integration.support.vm_pods import make_machines

MIB = 1 << 20
BOOT_SECONDS = 200
RUN_SECONDS = 150
"""For tiny machines, of which two runs follow each other."""
TINY = {"limits": {"cpu": "1", "memory": "16Mi"}, "requests": {"cpu": "10m"}}
SCRIPT = """#!/bin/sh
for disk in /sys/block/vd*; do echo "disk ${disk##*/} $(cat $disk/serial) $(cat $disk/size)"; done
echo "read $(head -c 9 /dev/vdb)"
echo "written by the guest" | dd of=/dev/vdb bs=512 seek=1 conv=notrunc,fsync 2>/dev/null
echo "disks were seen"
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def bench(
    make_bench: Callable[..., Bench], lab: Lab, images: Path, tmp_path_factory: pytest.TempPathFactory
) -> Bench:
    directories = [str(images), str(load_machine_image().parent)]
    return make_machines(make_bench, lab, tmp_path_factory.mktemp("disks"), imageDirectories=directories)


@pytest.fixture
def device(tmp_path: Path) -> Iterator[LoopDevice]:
    """An empty block device of 8 MiB."""
    file = tmp_path / "device"
    with file.open("wb") as content:
        content.truncate(8 * MIB)
    with LoopDevice(file) as one:
        yield one


def put(bench: Bench, name: str, image: Path, device: LoopDevice | None = None, **machine: Any) -> None:
    """A pod with this machine; `device` becomes its block volume ``data``."""
    spec: dict[str, Any] = {}
    if device is not None:
        source = {"path": str(device.path), "type": "BlockDevice"}
        spec = {"volumes": [{"name": "data", "hostPath": source}]}
        machine["volumeDevices"] = [{"name": "data", "devicePath": "/dev/vdb"}]
    body = {"resources": TINY, **machine}
    put_manifest(bench.manifests, machine_manifest(name, image=str(image), machine=body, spec=spec))


def previous(bench: Bench, name: str) -> str:
    """What the run before the present one printed."""
    return bench.agent.cli("logs", f"{name}-lab", "--previous").stdout


def test_a_restart_in_place_keeps_the_disk_and_a_new_pod_gets_a_fresh_one(bench: Bench, images: Path) -> None:
    image = make_counting_machine_image(images, starts=2)
    for restarts_agent in (True, False):
        put(bench, "keeps", image)
        wait_console(bench.agent, "keeps-lab", "boots 2", timeout_seconds=RUN_SECONDS)
        assert "boots 1" in previous(bench, "keeps")
        bench.until("keeps", lambda pod: pod.status.phase == "Running" and restarts(pod, "keeps") == 1)
        if restarts_agent:
            before = emulators(bench.agent)
            bench.agent.stop()
            bench.agent.start()
            bench.until("keeps", lambda pod: pod.status.phase == "Running")
            assert emulators(bench.agent) == before
        bench.remove("keeps")
    assert image.read_bytes()[512] == 0


def test_shutdown_behaviour_terminate_removes_the_disk_with_each_run(bench: Bench, images: Path) -> None:
    put(bench, "ends", make_counting_machine_image(images, starts=2), shutdownBehavior="terminate")
    bench.until("ends", lambda pod: restarts(pod, "ends") >= 1, seconds=RUN_SECONDS)
    wait_console(bench.agent, "ends-lab", "boots 1", timeout_seconds=RUN_SECONDS)
    assert "boots 2" not in bench.agent.cli("logs", "ends-lab").stdout
    assert "boots 1" in previous(bench, "ends")
    bench.remove("ends")


def test_a_disk_that_can_never_be_is_refused_and_one_larger_than_the_room_is_reported(
    bench: Bench, images: Path
) -> None:
    image = make_counting_machine_image(images)
    for name, size in (("huge", "3Ti"), ("large", "1Ti")):
        manifest = machine_manifest(name, image=str(image), machine={"resources": TINY})
        manifest["metadata"]["annotations"] = {"kubeletx.io/vm-disk-size": size}
        put_manifest(bench.manifests, manifest)
    found = bench.waiting("huge", "RuntimeUnsupported", of="huge").message or ""
    assert "raise maxVirtualBytes" in found
    bench.event("large", "DiskLargerThanFree", "may grow to 1099511627776 bytes")
    bench.remove("huge", "large")


def test_a_machine_that_boots_from_a_volume_finds_its_data_again_in_another_pod(
    bench: Bench, images: Path, device: LoopDevice
) -> None:
    image = make_counting_machine_image(images)
    with device.path.open("r+b") as content:
        content.write(image.read_bytes())
    for count in (1, 2):
        put(bench, "boots", image, device, bootVolume="data")
        wait_console(bench.agent, "boots-lab", f"boots {count}", timeout_seconds=RUN_SECONDS)
        bench.remove("boots")
    with device.path.open("rb") as content:
        assert content.read(513)[512] == 2


def test_a_block_volume_is_a_virtio_disk_that_the_guest_reads_and_writes(
    bench: Bench, device: LoopDevice
) -> None:
    with device.path.open("r+b") as content:
        content.write(b"from node")
    size = {"limits": {"cpu": "1", "memory": "192Mi"}, "requests": {"cpu": "10m"}}
    script = base64.b64encode(SCRIPT.encode()).decode()
    put(bench, "linux", load_machine_image(), device, resources=size, userData=script)
    log = wait_console(bench.agent, "linux-lab", "disks were seen", timeout_seconds=BOOT_SECONDS)
    assert f"disk vdb data {8 * MIB // 512}" in log
    assert "disk vda root" in log
    assert "read from node" in log
    bench.remove("linux")
    with device.path.open("rb") as content:
        assert content.read(1024)[512:].startswith(b"written by the guest\n")
