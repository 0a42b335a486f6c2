"""The domain XML of a machine. Pure: `domain_xml` converts a `Plan` to text.

All devices are virtio on a q35 machine, as far as virtio has them. The guest sees the same devices at every
start of the same pod: the disks in the same order with the same serial numbers, and the same MAC addresses.
So the guest's own configuration remains valid.
"""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec

from .metadata import NAMESPACE, PREFIX
from .sizing import Size

AGENT_CHANNEL = "org.qemu.guest_agent.0"
_OWN_PORTS = 4
"""PCIe ports used by the devices of every machine: serial controller, balloon, random numbers, USB."""
_HOTPLUG_PORTS = 6
"""Free PCIe ports, for interfaces and disks that join a running machine."""


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """One disk. `path`: a file or a block device. `boot`: the firmware boots from this disk.

    `is_block`: `path` is a block device. `serial`: serial number that the guest sees.
    """

    path: str
    format: str
    is_block: bool = False
    read_only: bool = False
    serial: str = ""
    boot: bool = False
    backing_path: str = ""
    """Path of the backing file; empty: none.

    `backing_format` must be set too: the chain of backing files ends there, so that the emulator probes no
    format.
    """
    backing_format: str = ""
    backing_stays_roots: bool = False
    """True: libvirt does not change the owner of the backing file, which other machines use too."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """All that `domain_xml` needs to build the XML of a domain.

    `title`: shown to people by libvirt's tools. `metadata`: see `metadata.metadata_element`. `accelerator`:
    type of the domain: kvm, qemu, or test for libvirt's test driver. `log_path`: file for the output of the
    serial console; empty: none. `firmware`: bios or uefi.
    """

    uuid: str
    name: str
    title: str
    metadata: str
    accelerator: str
    size: Size
    disks: tuple[Disk, ...]
    devices: tuple[str, ...] = ()
    """Further elements for <devices> as XML text: network interfaces and shared directories."""
    elements: tuple[str, ...] = ()
    """Further elements for <domain> as XML text, such as memoryBacking."""
    log_path: str = ""
    firmware: str = "bios"
    watchdog: bool = False


def domain_xml(plan: Plan) -> str:
    """Return the domain XML for libvirt's defineXML."""
    ElementTree.register_namespace(PREFIX, NAMESPACE)
    root = ElementTree.Element("domain", type=plan.accelerator)
    _add(root, "name", plan.name)
    _add(root, "uuid", plan.uuid)
    _add(root, "title", plan.title)
    _add(root, "metadata").append(ElementTree.fromstring(plan.metadata))
    _sizes(root, plan.size)
    for text in plan.elements:
        root.append(ElementTree.fromstring(text))
    system = _add(root, "os")
    _add(system, "type", "hvm", arch="x86_64", machine="q35")
    if plan.firmware == "uefi":
        system.set("firmware", "efi")
        # By default libvirt uses the first firmware it finds: Debian's has Secure Boot and starts only signed systems.
        _add(_add(system, "firmware"), "feature", enabled="no", name="secure-boot")
    features = _add(root, "features")
    _add(features, "acpi")
    _add(features, "apic")
    _add(root, "cpu", mode="host-passthrough" if plan.accelerator == "kvm" else "maximum")
    _add(root, "clock", offset="utc")
    for event, action in (("on_poweroff", "destroy"), ("on_reboot", "restart"), ("on_crash", "destroy")):
        _add(root, event, action)
    _devices(_add(root, "devices"), plan)
    return ElementTree.tostring(root, encoding="unicode")


def disk_target(index: int) -> str:
    """Return the device name of the disk with this index: vda, vdb, ... vdz, vdaa."""
    letters = ""
    index += 1
    while index:
        index, rest = divmod(index - 1, 26)
        letters = chr(ord("a") + rest) + letters
    return f"vd{letters}"


def _sizes(root: ElementTree.Element, size: Size) -> None:
    _add(root, "memory", str(size.max_memory_bytes // 1024), unit="KiB")
    _add(root, "currentMemory", str(size.memory_bytes // 1024), unit="KiB")
    vcpu = _add(root, "vcpu", str(size.max_vcpus), placement="static")
    if size.max_vcpus != size.vcpus:
        vcpu.set("current", str(size.vcpus))
        vcpus = _add(root, "vcpus")
        for number in range(size.max_vcpus):
            enabled, can_leave = number < size.vcpus, number > 0
            _add(
                vcpus,
                "vcpu",
                id=str(number),
                enabled="yes" if enabled else "no",
                hotpluggable="yes" if can_leave else "no",
                **({"order": str(number + 1)} if enabled else {}),
            )
    if size.quota_us is not None or size.shares is not None:
        tune = _add(root, "cputune")
        if size.shares is not None:
            _add(tune, "shares", str(size.shares))
        if size.quota_us is not None:
            _add(tune, "period", str(size.period_us))
            _add(tune, "quota", str(size.quota_us))


def _devices(devices: ElementTree.Element, plan: Plan) -> None:
    for index, disk in enumerate(plan.disks):
        _disk(devices, index, disk)
    _add(devices, "controller", type="pci", index="0", model="pcie-root")
    for port in range(len(plan.disks) + len(plan.devices) + _OWN_PORTS + _HOTPLUG_PORTS):
        _add(devices, "controller", type="pci", index=str(port + 1), model="pcie-root-port")
    for text in plan.devices:
        devices.append(ElementTree.fromstring(text))
    for kind in ("serial", "console"):
        port_ = _add(devices, kind, type="pty")
        if kind == "serial" and plan.log_path:
            _add(port_, "log", file=plan.log_path, append="on")
        _add(port_, "target", type="isa-serial" if kind == "serial" else "serial", port="0")
    channel = _add(devices, "channel", type="unix")
    _add(channel, "target", type="virtio", name=AGENT_CHANNEL)
    _add(_add(devices, "video"), "model", type="vga", vram="16384", heads="1", primary="yes")
    _add(_add(devices, "rng", model="virtio"), "backend", "/dev/urandom", model="random")
    _add(_add(devices, "memballoon", model="virtio"), "stats", period="10")
    _add(devices, "panic", model="isa")
    if plan.watchdog:
        _add(devices, "watchdog", model="i6300esb", action="pause")


def _disk(devices: ElementTree.Element, index: int, disk: Disk) -> None:
    element = _add(devices, "disk", type="block" if disk.is_block else "file", device="disk")
    _add(element, "driver", name="qemu", type=disk.format, discard="unmap")
    _add(element, "source", **{"dev" if disk.is_block else "file": disk.path})
    if disk.backing_path:
        backing = _add(element, "backingStore", type="file")
        _add(backing, "format", type=disk.backing_format)
        source = _add(backing, "source", file=disk.backing_path)
        if disk.backing_stays_roots:
            _add(source, "seclabel", model="dac", relabel="no")
        _add(backing, "backingStore")
    else:
        _add(element, "backingStore")
    _add(element, "target", dev=disk_target(index), bus="virtio")
    if disk.serial:
        _add(element, "serial", disk.serial)
    if disk.read_only:
        _add(element, "readonly")
    if disk.boot:
        _add(element, "boot", order="1")


def _add(
    parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str
) -> ElementTree.Element:
    element = ElementTree.SubElement(parent, tag, attributes)
    element.text = text
    return element
