"""Reads the devices of a domain from the XML that libvirt returns. Pure."""

from __future__ import annotations

from xml.etree import ElementTree

import msgspec


class DiskSeen(msgspec.Struct, frozen=True, kw_only=True):
    """One disk of a domain.

    `target`: device name, such as vda. `device`: disk or cdrom. `path`: the disk's file; empty for a block
    device.
    """

    target: str
    format: str
    path: str = ""
    device: str = "disk"
    read_only: bool = False

    @property
    def is_written(self) -> bool:
        return self.device == "disk" and not self.read_only


def shared_directories(text: str) -> tuple[str, ...]:
    """Return the tags of the directories that are shared with the guest by virtiofs or 9p.

    `text`: the domain's XML.
    """
    filesystems = ElementTree.fromstring(text).findall("./devices/filesystem")
    return tuple(_attribute(filesystem, "target", "dir") or "unnamed" for filesystem in filesystems)


def forbids_saved_memory(text: str) -> str | None:
    """Return the reason that the memory of a running domain cannot be saved; None if it can.

    The server of a shared directory (virtiofsd or the emulator's 9p) has open files that are not in the
    guest's memory. `text`: the domain's XML.
    """
    shares = shared_directories(text)
    if not shares:
        return None
    return f"it shares directories with the node ({', '.join(shares)}), whose state cannot be saved with its memory"


def disks_seen(text: str) -> tuple[DiskSeen, ...]:
    """Return all disks of the domain. `text`: the domain's XML."""
    return tuple(
        DiskSeen(
            target=_attribute(disk, "target", "dev"),
            format=_attribute(disk, "driver", "type") or "raw",
            path=_attribute(disk, "source", "file"),
            device=disk.get("device", "disk"),
            read_only=disk.find("readonly") is not None,
        )
        for disk in ElementTree.fromstring(text).findall("./devices/disk")
    )


def interface_aliases(text: str) -> dict[str, str]:
    """Return the MAC address of every network interface, by libvirt's alias for the device.

    `text`: the domain's XML.
    """
    return {
        _attribute(interface, "alias", "name"): _attribute(interface, "mac", "address")
        for interface in ElementTree.fromstring(text).findall("./devices/interface")
    }


def _attribute(parent: ElementTree.Element, child: str, name: str) -> str:
    element = parent.find(child)
    return "" if element is None else element.get(name, "")
