"""The XML of a machine."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec
from kubeletx_libvirt.domain.metadata import metadata_element
from kubeletx_libvirt.domain.sizing import Size
from kubeletx_libvirt.domain.xml import Disk, Plan, disk_target, domain_xml

from .test_metadata import PLAIN

MIB = 1 << 20
PLAN = Plan(
    uuid="6c1a8a34-6b33-4b0e-8c5e-0b7c6a5f6d2e",
    name="kx-6c1a8a34",
    title="default/vm",
    metadata=metadata_element(PLAIN),
    accelerator="qemu",
    size=Size(vcpus=2, max_vcpus=4, memory_bytes=256 * MIB, max_memory_bytes=512 * MIB, quota_us=75_000),
    disks=(
        Disk(path="/d/root.qcow2", format="qcow2", boot=True, backing_path="/i/a", backing_format="raw"),
        Disk(path="/dev/loop7", format="raw", is_block=True, read_only=True, serial="data"),
    ),
    log_path="/logs/a&b.log",
)


def parse(plan: Plan) -> ElementTree.Element:
    return ElementTree.fromstring(domain_xml(plan))


def test_sizes_quota_and_maximums_are_written() -> None:
    root = parse(PLAN)
    vcpu = root.find("vcpu")
    assert vcpu is not None
    assert (vcpu.text, vcpu.get("current")) == ("4", "2")
    assert (root.findtext("memory"), root.findtext("currentMemory")) == ("524288", "262144")
    assert root.findtext("cputune/quota") == "75000"


def test_the_chain_of_a_root_disk_ends_at_its_image_so_that_nothing_is_probed() -> None:
    disk, data = parse(PLAN).findall("devices/disk")
    assert disk.find("backingStore/format").get("type") == "raw"  # type: ignore[union-attr]
    assert disk.find("backingStore/backingStore") is not None
    assert disk.find("boot") is not None
    assert data.find("source").get("dev") == "/dev/loop7"  # type: ignore[union-attr]
    assert data.find("readonly") is not None
    assert data.find("boot") is None


def test_every_machine_has_console_log_agent_channel_and_panic_device() -> None:
    devices = parse(PLAN).find("devices")
    assert devices is not None
    assert devices.find("serial/log").get("file") == "/logs/a&b.log"  # type: ignore[union-attr]
    assert devices.find("channel/target").get("name") == "org.qemu.guest_agent.0"  # type: ignore[union-attr]
    assert devices.find("panic") is not None
    assert devices.find("watchdog") is None
    assert parse(msgspec.structs.replace(PLAN, watchdog=True)).find("devices/watchdog") is not None


def test_a_crash_ends_the_machine_and_a_reboot_does_not() -> None:
    root = parse(PLAN)
    actions = [root.findtext(tag) for tag in ("on_poweroff", "on_reboot", "on_crash")]
    assert actions == ["destroy", "restart", "destroy"]


def test_uefi_is_left_to_libvirt_to_find_and_has_no_secure_boot() -> None:
    assert parse(PLAN).find("os").get("firmware") is None  # type: ignore[union-attr]
    system = parse(msgspec.structs.replace(PLAN, firmware="uefi")).find("os")
    assert system is not None
    assert system.get("firmware") == "efi"
    feature = system.find("firmware/feature")
    assert feature is not None
    assert (feature.get("name"), feature.get("enabled")) == ("secure-boot", "no")


def test_disks_are_named_beyond_the_alphabet() -> None:
    assert [disk_target(index) for index in (0, 25, 26, 27, 701, 702)] == [
        "vda",
        "vdz",
        "vdaa",
        "vdab",
        "vdzz",
        "vdaaa",
    ]
