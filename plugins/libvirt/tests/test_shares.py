"""Directories of the node in the guest: the plan and its XML."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

from kubeletx_libvirt.shares import (
    ShareKind,
    closed_share,
    memory_backing_xml,
    plan_shares,
    share_xml,
)

from kubeletx.api import Mount, SourceKind

MOUNTS = (
    Mount(source="/pods/u1/data/inner", target="/data/inner"),
    Mount(source="/pods/u1/data", target="/data"),
    Mount(source="/pods/u1/config", target="/etc/app", read_only=True),
    Mount(source="/pods/u1/hosts", target="/etc/my hosts"),
    Mount(source="/dev/vdz", target="/dev/vdb", kind=SourceKind.BLOCK_DEVICE),
)
FILES = frozenset({"/pods/u1/hosts"})


def plan(kind: ShareKind = ShareKind.VIRTIOFS):  # type: ignore[no-untyped-def]
    return plan_shares(MOUNTS, directory=Path("/machine/shares"), kind=kind, files=FILES)


def test_outer_directories_come_first_and_disks_are_not_shares() -> None:
    assert [share.target for share in plan()] == ["/data", "/data/inner", "/etc/app", "/etc/my hosts"]


def test_read_only_mounts_and_single_files_get_a_directory_of_their_own() -> None:
    data, _, config, hosts = plan()
    assert (data.directory, data.is_prepared) == ("/pods/u1/data", False)
    assert config.directory == f"/machine/shares/{config.tag}"
    assert config.is_prepared
    assert hosts.file == "my hosts"
    assert hosts.is_prepared


def test_tags_are_short_and_different() -> None:
    tags = [share.tag for share in plan()]
    assert len(set(tags)) == len(tags)
    assert all(len(tag) <= 31 for tag in tags)


def test_virtiofs_needs_shared_memory_and_9p_says_read_only() -> None:
    virtiofs, nine_p = plan()[2], plan(ShareKind.NINE_P)[2]
    driver = ET.fromstring(share_xml(virtiofs)).find("driver")
    assert driver is not None
    assert driver.get("type") == "virtiofs"
    assert ET.fromstring(share_xml(virtiofs)).find("readonly") is None
    assert ET.fromstring(share_xml(nine_p)).find("readonly") is not None
    assert "shared" in memory_backing_xml(plan())
    assert memory_backing_xml(plan(ShareKind.NINE_P)) == ""
    assert memory_backing_xml(()) == ""


def test_the_guest_mounts_each_share_as_it_is() -> None:
    config = plan(ShareKind.NINE_P)[2]
    assert config.mount_options.endswith(",ro")
    assert "trans=virtio" in config.mount_options
    assert plan()[0].mount_options == ""


def test_with_9p_an_emulator_that_is_not_root_finds_every_share_below_the_machines_own_directory() -> None:
    for kind, are_prepared in ((ShareKind.NINE_P, True), (ShareKind.VIRTIOFS, False)):
        data, *_ = plan_shares(MOUNTS, directory=Path("/machine/shares"), kind=kind, is_root=False)
        assert data.is_prepared is are_prepared
        assert ET.fromstring(share_xml(data)).get("accessmode") == (
            "squash" if are_prepared else "passthrough"
        )


def test_a_directory_that_an_emulator_could_not_open_is_found_in_libvirts_words() -> None:
    shares = plan(ShareKind.NINE_P)
    config = shares[2]
    words = f"cannot initialize fsdev 'fs0': failed to open '{config.directory}': Permission denied"
    assert closed_share(shares, words) == config
    assert closed_share(shares, words.replace("Permission denied", "No such file or directory")) is None
    assert closed_share(shares, "failed to open '/dev/kvm': Permission denied") is None
