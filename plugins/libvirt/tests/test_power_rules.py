"""The pure rules of snapshots, sizes and devices."""

from __future__ import annotations

import contextlib
from xml.etree import ElementTree

import pytest
from kubeletx_libvirt.domain.devices import (
    disks_seen,
    forbids_saved_memory,
    interface_aliases,
    shared_directories,
)
from kubeletx_libvirt.domain.sizing import MIB, Size
from kubeletx_libvirt.records import UnitRecord
from kubeletx_libvirt.resize import check_memory, check_within, granted_now, merged
from kubeletx_libvirt.resize import refusal as resize_refusal
from kubeletx_libvirt.snapshots import refusal, snapshot_status, snapshot_xml

from kubeletx.api import ImageSpec, InvalidPod, Machine, Resources, UnitSpec, UnitState

DOMAIN = """<domain><devices>
<disk type='file' device='disk'><driver name='qemu' type='qcow2'/><target dev='vda'/></disk>
<disk type='file' device='cdrom'><driver name='qemu' type='raw'/><target dev='sda'/><readonly/></disk>
<interface type='bridge'><mac address='02:00:00:00:00:01'/><alias name='ua-eth0'/></interface>
</devices></domain>"""
SHARED = DOMAIN.replace("</devices>", "<filesystem type='mount'><target dir='data'/></filesystem></devices>")
RAW = DOMAIN.replace("</devices>", "<disk type='block' device='disk'><target dev='vdb'/></disk></devices>")


def test_devices_are_read_from_a_domain() -> None:
    assert [(one.target, one.format, one.is_written) for one in disks_seen(DOMAIN)] == [
        ("vda", "qcow2", True),
        ("sda", "raw", False),
    ]
    assert interface_aliases(DOMAIN) == {"ua-eth0": "02:00:00:00:00:01"}
    assert (shared_directories(DOMAIN), shared_directories(SHARED)) == ((), ("data",))


@pytest.mark.parametrize(
    ("text", "state", "memory", "words"),
    [
        (DOMAIN, UnitState.RUNNING, True, None),
        (DOMAIN, UnitState.EXITED, False, None),
        (SHARED, UnitState.EXITED, False, None),
        (DOMAIN, UnitState.SUSPENDED, True, "resume it first"),
        (DOMAIN, UnitState.EXITED, True, "no memory"),
        (RAW, UnitState.RUNNING, True, "vdb is not in qcow2 format"),
        (SHARED, UnitState.RUNNING, True, "shares directories with the node (data)"),
    ],
)
def test_a_snapshot_that_cannot_be_is_refused_in_words(
    text: str, state: UnitState, memory: bool, words: str | None
) -> None:
    said = refusal(text, state, memory)
    assert said is None if words is None else words in (said or "")


def test_saved_memory_is_forbidden_by_shared_directories_only() -> None:
    assert forbids_saved_memory(DOMAIN) is forbids_saved_memory(RAW) is None
    assert "shares directories with the node (data)" in (forbids_saved_memory(SHARED) or "")


def test_a_snapshot_without_memory_of_a_running_guest_is_distinguished_from_one_with_it() -> None:
    disks = disks_seen(DOMAIN)
    whole = snapshot_xml("a", disks, running=True, memory=True)
    partial = snapshot_xml("b", disks, running=True, memory=False)
    off = snapshot_xml("c", disks, running=False, memory=False)
    assert [snapshot_status(text).with_memory for text in (whole, partial, off)] == [True, False, False]
    kinds = {one.get("name"): one.get("snapshot") for one in ElementTree.fromstring(whole).iter("disk")}
    assert kinds == {"vda": "internal", "sda": "no"}


def test_a_resize_leaves_what_it_does_not_name() -> None:
    old = Resources(cpu_limit_millicores=1000, memory_limit_bytes=MIB, cpu_shares=2)
    assert merged(old, Resources(cpu_shares=512)) == Resources(
        cpu_limit_millicores=1000, memory_limit_bytes=MIB, cpu_shares=512
    )
    assert merged(old, Resources(cpu_limit_millicores=500)).cpu_limit_millicores == 500


@pytest.mark.parametrize(("vcpus", "memory"), [(3, MIB), (1, 3 * MIB)])
def test_a_machine_grows_no_further_than_it_was_made_for(vcpus: int, memory: int) -> None:
    size = Size(vcpus=vcpus, max_vcpus=vcpus, memory_bytes=memory, max_memory_bytes=memory)
    with pytest.raises(InvalidPod, match="can grow to"):
        check_within(size, {"max_vcpus": 2, "max_memory_bytes": 2 * MIB})


@pytest.mark.parametrize(
    ("wanted", "usable", "refused"),
    [
        (200, 100, ""),
        (155, 100, "155 MiB are less than 156 MiB, and the guest uses that much now"),
        (156, 100, ""),
        (300, 0, ""),
        (16, None, ""),
        (15, None, "no guest runs with less"),
        (15, 256, "no guest runs with less"),
    ],
)
def test_a_running_guest_keeps_the_memory_that_it_uses(wanted: int, usable: int | None, refused: str) -> None:
    size = Size(vcpus=1, max_vcpus=1, memory_bytes=wanted * MIB, max_memory_bytes=wanted * MIB)
    seen = {"actual": 256 * 1024} | ({"usable": usable * 1024} if usable is not None else {})
    with pytest.raises(InvalidPod, match=refused) if refused else contextlib.nullcontext():
        check_memory(size, seen)
    check_memory(size, {})


@pytest.mark.parametrize(
    ("kind", "vcpu", "asked", "is_refused"),
    [
        ("qemu", "<vcpu current='2'>4</vcpu>", 1, True),
        ("qemu", "<vcpu>2</vcpu>", 1, True),
        ("qemu", "<vcpu current='2'>4</vcpu>", 2, False),
        ("qemu", "<vcpu current='2'>4</vcpu>", 3, False),
        ("kvm", "<vcpu current='2'>4</vcpu>", 1, False),
    ],
)
def test_an_emulated_guest_that_runs_keeps_its_processors(
    kind: str, vcpu: str, asked: int, is_refused: bool
) -> None:
    size = Size(vcpus=asked, max_vcpus=4, memory_bytes=MIB, max_memory_bytes=MIB)
    said = resize_refusal(f"<domain type='{kind}'>{vcpu}</domain>", size)
    assert ("emulated and has 2 processors, 1 are requested" in (said or "")) is is_refused


def test_granted_is_what_the_guest_has_and_not_what_was_asked() -> None:
    spec = UnitSpec(name="vm", image=ImageSpec(requested="x"), detail=Machine())
    asked = Resources(cpu_limit_millicores=1500, memory_limit_bytes=2 * MIB)
    record = UnitRecord(spec=spec, asked=asked)
    waiting = granted_now(record, {"vcpus": 1, "memory_bytes": MIB})
    assert (waiting["cpu_limit_millicores"], waiting["memory_limit_bytes"]) == (1000, MIB)
    done = granted_now(record, {"vcpus": 2, "memory_bytes": 2 * MIB})
    assert (done["cpu_limit_millicores"], done["memory_limit_bytes"]) == (1500, 2 * MIB)
