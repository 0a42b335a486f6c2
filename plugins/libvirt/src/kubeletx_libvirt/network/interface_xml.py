"""Converts a `GuestLink` to libvirt's ``<interface>`` element. Pure.

The pod's own link is an existing macvtap (``type='ethernet'``, not managed), which libvirt only opens.
"""

from __future__ import annotations

import re
from xml.etree import ElementTree as ET

from .links import GuestLink, LinkKind

_SOURCES = {LinkKind.BRIDGE: "bridge", LinkKind.NETWORK: "network"}
_NOT_IN_ALIAS = re.compile(r"[^A-Za-z0-9_-]")


def interface_xml(link: GuestLink) -> str:
    """Return the ``<interface>`` element as text, for the domain's definition and for hotplug.

    Its alias is ``ua-`` and the link's name.
    """
    is_direct = link.kind is LinkKind.DIRECT
    root = ET.Element("interface", type="ethernet" if is_direct else link.kind.value)
    ET.SubElement(root, "mac", address=link.mac)
    if is_direct:
        ET.SubElement(root, "target", dev=link.source, managed="no")
    else:
        ET.SubElement(root, "source", {_SOURCES[link.kind]: link.source})
    ET.SubElement(root, "model", type="virtio")
    if link.mtu and not is_direct:
        ET.SubElement(root, "mtu", size=str(link.mtu))
    ET.SubElement(root, "alias", name=interface_alias(link.name))
    return ET.tostring(root, encoding="unicode")


def interface_alias(name: str) -> str:
    """Return libvirt's alias for the interface `name`, by which it is found in a domain's XML."""
    return "ua-" + _NOT_IN_ALIAS.sub("_", name)
