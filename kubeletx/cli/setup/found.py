"""Looks around on a node for `kubeletx setup`: runtimes that an installed plugin can use, and a free subnet for pods."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from pathlib import Path
from typing import Final, NamedTuple

BRIDGE: Final = "kubeletx0"
"""Bridge of the pod network that `kubeletx setup` writes."""
_CANDIDATES: Final = (*(f"10.{number}.0.0/16" for number in range(88, 128)), "172.30.0.0/16", "192.168.240.0/20")  # fmt: skip


class KnownRuntime(NamedTuple):
    """A runtime that a node may have. `plugin`: its entry point. `traces`: any of these paths shows that it is there."""

    plugin: str
    endpoint: str
    traces: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.endpoint.split(":")[1]


_CONTAINERD: Final = ("run/containerd/containerd.sock", "usr/bin/containerd", "usr/local/bin/containerd")
_CRIO: Final = ("run/crio/crio.sock", "usr/bin/crio", "usr/local/bin/crio")
_LIBVIRT: Final = ("run/libvirt/libvirt-sock", "run/libvirt/virtqemud-sock", "usr/sbin/libvirtd", "usr/sbin/virtqemud")  # fmt: skip
KNOWN: Final = (
    KnownRuntime("containerd", "container:containerd:unix:///run/containerd/containerd.sock", _CONTAINERD),
    KnownRuntime("containerd", "container:cri-o:unix:///run/crio/crio.sock", _CRIO),
    KnownRuntime("quark", "container:quark:unix:///run/containerd/containerd.sock?plugin=quark", _CONTAINERD),
    KnownRuntime("libvirt", "vm:libvirt-qemu:qemu:///system", _LIBVIRT),
)
"""In the order of the settings file: the first of a type is its default."""


def find_runtimes(root: Path, plugins: Collection[str]) -> tuple[list[KnownRuntime], list[str]]:
    """Return the runtimes below `root` for which a plugin is installed, and the plugins that others lack.

    `plugins`: names of the installed plugins. A runtime is found by its socket or by its program, so that an image of
    a node, in which nothing runs, has runtimes too.
    """
    there = [known for known in KNOWN if any((root / trace).exists() for trace in known.traces)]
    missing = {known.plugin for known in there if known.plugin not in plugins} - {"quark"}
    return [known for known in there if known.plugin in plugins], sorted(missing)


def free_subnet(routes: str) -> str | None:
    """Return a subnet that no route uses, or None if all candidates are in use.

    `routes`: content of ``/proc/net/route``, in which addresses are hexadecimal numbers in the byte order of the machine.
    The default route and routes of `BRIDGE` do not count.
    """
    used = []
    for fields in map(str.split, routes.split("\n")[1:]):
        if len(fields) > 7 and fields[0] != BRIDGE:
            address, mask = (bytes.fromhex(fields[column])[::-1] for column in (1, 7))
            length = int.from_bytes(mask, "big").bit_count()
            used += [ipaddress.IPv4Network((address, length), strict=False)] if length else []
    networks = map(ipaddress.IPv4Network, _CANDIDATES)
    free = (str(one) for one in networks if not any(one.overlaps(network) for network in used))
    return next(free, None)
