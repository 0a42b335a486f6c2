"""Settings of the libvirt plugin: section ``kubeletx.plugins.libvirt`` of the configuration file.

The tables ``networks`` and ``ports`` say what the names in pods mean on this node (DECISIONS 30).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from kubeletx.api.specs import Spec
from kubeletx.kube.validation import words
from kubeletx_libvirt.domain.sizing import MIB

GIB = 1 << 30
Bytes = Annotated[int, msgspec.Meta(gt=0)]
Mac = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-fA-F][02468aceACE](:[0-9a-fA-F]{2}){5}$")]
"""A unicast MAC address."""


class Route(Spec, frozen=True, kw_only=True):
    """One route. `destination`: in CIDR notation. `gateway`: empty: on-link."""

    destination: str
    gateway: str = ""


class NetworkTarget(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Network for a ``vpc`` or ``nics[].subnetName``: `bridge`, or `network`; with neither, the pod network.

    `bridge`: a bridge of this node. `network`: a named network of this libvirt. `subnet` (CIDR) and `routes`:
    for guests with ``nics[].ipAddress``; without `subnet` such a pod is refused. Other guests use the
    network's DHCP. `dns`: name servers for all guests. `mtu`: None: the device's default.
    """

    bridge: str | None = None
    network: str | None = None
    subnet: str | None = None
    routes: tuple[Route, ...] = ()
    dns: tuple[str, ...] = ()
    mtu: int | None = None

    @property
    def is_pod_network(self) -> bool:
        return self.bridge is None and self.network is None


class PortEntry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Port for a ``nics[].portId``. `network`: a key of ``networks``; None: the pod network.

    `mac`: None: a stable one derived from the port's id. `ip_address`: None: the address in the pod's spec,
    or DHCP if the spec has none.
    """

    network: str | None = None
    mac: Mac | None = None
    ip_address: str | None = None


class ImageSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Settings of the image store.

    `image_directories`: every pod may use local images and file URLs below these directories only. None, the
    default: pods from manifests may use ``/var/lib/libvirt/images``, pods from the API server none.
    `image_hosts`: images of every pod come from these servers only (``HOST``, ``HOST:PORT`` or ``*.DOMAIN``),
    also after redirects; aliases may lead elsewhere. None, the default: any server, for pods from the API server
    without addresses of the node itself.
    `image_aliases`: names for image references; an alias takes precedence over every other meaning.
    `max_image_bytes`: maximum size of a download, and of the unpacked file (64 GiB: larger than published
    cloud images, smaller than a node's disk). `max_virtual_bytes`: maximum size of the disk that an image
    defines (2 TiB: what a BIOS can boot from). `insecure_registries`: ``HOST[:PORT]`` of registries that are
    reached over plain HTTP. `image_stall_seconds`: a transfer is given up if the server sends less than 64 KiB
    in this time, or has not sent the whole manifest of an image (60, as long as a TCP connection may need to
    recover from losses).
    """

    image_directories: tuple[str, ...] | None = None
    image_hosts: tuple[str, ...] | None = None
    image_aliases: dict[str, str] = {}
    max_image_bytes: Bytes = 64 * GIB
    max_virtual_bytes: Bytes = 2048 * GIB
    insecure_registries: tuple[str, ...] = ()
    image_stall_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0


class Settings(ImageSettings, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Settings of the plugin; each has a default that works. Settings about images are in `ImageSettings`."""

    accelerator: Literal["auto", "kvm", "qemu"] = "auto"
    """auto: KVM if a test guest runs with it on this machine (tested once per boot), else emulation."""
    default_memory_bytes: Bytes = GIB
    """Memory of a machine without a memory limit."""
    memory_overhead_bytes: Annotated[int, msgspec.Meta(ge=0)] = 192 * MIB
    """Memory of the emulator in addition to the guest's; measured for QEMU with the devices that machines
    have here.
    """
    max_vcpus: Annotated[int, msgspec.Meta(ge=1)] = 64
    """Maximum number of virtual CPUs of one machine."""
    watchdog: bool = False
    """Add an i6300esb watchdog to every machine. If the guest does not reset it in time, the machine ends."""
    networks: dict[str, NetworkTarget] = {}
    """Networks of this node, by the names used in a pod's ``vpc`` and ``nics[].subnetName``."""
    ports: dict[str, PortEntry] = {}
    """Ports of this node, by the ids used in ``nics[].portId``."""
    unknown_network: Literal["warn", "refuse"] = "warn"
    """For a vpc or portId without an entry: join the pod network with a Warning event, or reject the pod."""
    key_pairs: dict[str, str] = {}
    """SSH public keys by name. A ``keyPairName`` that is not here is rejected."""
    shares: Literal["auto", "virtiofs", "9p"] = "auto"
    """File sharing with the guest. auto: virtiofs if virtiofsd is installed, else 9p."""

    def __post_init__(self) -> None:
        """Raise ValueError for values that contradict each other or name an unknown network."""
        problem = next(_problems(self), None)
        if problem is not None:
            raise ValueError(problem)


def _problems(settings: Settings) -> Iterator[str]:
    for name, target in settings.networks.items():
        yield from _network_problems(f"networks.{name}", target)
    for name, port in settings.ports.items():
        if port.network is not None and port.network not in settings.networks:
            known = ", ".join(sorted(settings.networks)) or "none"
            yield f"ports.{name}.network: {port.network!r} is not in networks; use one of: {known}"
        if port.ip_address is not None and words.ip_address(port.ip_address):
            yield f"ports.{name}.ipAddress: {port.ip_address!r} is not an IP address"
    for name, key in settings.key_pairs.items():
        problem = words.ssh_public_keys(key) if key.strip() else "is empty"
        if problem:
            yield f"keyPairs.{name}: {problem}"
    for path in settings.image_directories or ():
        if not Path(path).is_absolute():
            yield f"imageDirectories: {path!r} is not an absolute path; start it with '/'"
    for entry in settings.image_hosts or ():
        if problem := _host_problem(entry):
            yield f"imageHosts: {entry!r} {problem}"


def _host_problem(entry: str) -> str:
    from yarl import URL  # only a node that lists image servers needs it

    try:
        url = URL(f"//{entry}")
    except ValueError:
        url = URL()
    if url.host and url.raw_path in ("", "/") and not url.user and not any(c in entry for c in " /?#"):
        return ""
    return "is not a server; write HOST, HOST:PORT, [IPv6]:PORT or *.DOMAIN"


def _network_problems(field: str, target: NetworkTarget) -> Iterator[str]:
    if target.bridge and target.network:
        yield f"{field}: has both a bridge and a network; keep one of them"
    elif not target.bridge and not target.network:
        yield f"{field}: has neither a bridge nor a network; name one of them, or remove the entry"
    for index, route in enumerate(target.routes):
        yield from _subnet_problems(f"{field}.routes[{index}].destination", route.destination)
        if route.gateway and words.ip_address(route.gateway):
            yield f"{field}.routes[{index}].gateway: {route.gateway!r} is not an IP address"
    for index, server in enumerate(target.dns):
        if words.ip_address(server):
            yield f"{field}.dns[{index}]: {server!r} is not an IP address"
    if target.subnet is not None:
        yield from _subnet_problems(f"{field}.subnet", target.subnet)
    if target.mtu is not None and not 68 <= target.mtu <= 65535:
        yield f"{field}.mtu: {target.mtu} is out of range; use 68 to 65535"


def _subnet_problems(field: str, text: str) -> Iterator[str]:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        yield f"{field}: {text!r} is not a subnet; write it like 10.20.0.0/16"
