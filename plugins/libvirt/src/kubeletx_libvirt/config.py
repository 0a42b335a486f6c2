"""Settings of the plugin: section ``kubeletx.plugins.libvirt`` of the configuration file."""

from __future__ import annotations

from typing import Literal

from .images.settings import ImageSettings
from .network.settings import NetworkTarget, PortEntry

MIB = 1 << 20
GIB = 1 << 30


class Settings(ImageSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Every field has a default that works on a node without any section. Those of images: `ImageSettings`."""

    accelerator: Literal["auto", "kvm", "qemu"] = "auto"
    """auto: kvm if a guest really runs with it on this machine (tried once per boot), else emulation."""
    default_memory_bytes: int = GIB
    """Memory of a machine without a memory limit."""
    memory_overhead_bytes: int = 192 * MIB
    """What the emulator needs besides the guest's memory: QEMU with the devices used here, measured."""
    max_vcpus: int = 64
    """Most processors one machine may ask for."""
    watchdog: bool = False
    """Give every machine an i6300esb watchdog; when the guest lets it run out, the machine ends."""
    networks: dict[str, NetworkTarget] = {}
    """What a pod's ``vpc`` and ``nics[].subnetName`` stand for on this node."""
    ports: dict[str, PortEntry] = {}
    """What ``nics[].portId`` stands for on this node."""
    unknown_network: Literal["warn", "refuse"] = "warn"
    """A vpc or portId without an entry: join the pod network with a Warning event, or reject the pod."""
    key_pairs: dict[str, str] = {}
    """SSH public keys by the name that ``keyPairName`` gives; other names are rejected."""
    shares: Literal["auto", "virtiofs", "9p"] = "auto"
    """How directories come into the guest. auto: virtiofs where virtiofsd is installed, else 9p."""
