"""Changes the node's network: creates, lists and removes the devices of a pod's link. Only this file does so.

Each call runs on a thread of its own (see `namespaces`) and uses netlink. A netlink socket that was made
before the thread enters the pod's namespace still acts in the node's namespace.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path

from . import namespaces
from .names import INNER_BRIDGE, INNER_DEVICE, guest_device, outer_device, stable_mac
from .namespaces import OwnThreads
from .netlink import IFF_ALLMULTI, IFF_UP, Device, Netlink


class Wiring:
    """Creates, lists and removes the network devices of pods' links.

    All calls raise Unavailable or TimedOut; the message names the pod.
    """

    def __init__(self, threads: OwnThreads) -> None:
        self._threads = threads

    async def make_namespace(self, uid: str, path: Path) -> None:
        """Make a network namespace with ``lo`` up. A mount on the file `path`, which must exist, keeps it."""
        await self._threads.run(f"cannot make the namespace of pod {uid}", _make, path)

    def is_held(self, netns: Path) -> bool:
        """Return True if a namespace is mounted on the file. After a power cut only the file remains."""
        return os.path.ismount(netns)

    def has_device(self, name: str) -> bool:
        return is_device(name)

    async def unmount(self, uid: str, path: Path) -> None:
        await self._threads.run(f"cannot unmount the namespace of pod {uid}", namespaces.unmount, path)

    async def list_devices(self, uid: str, netns: Path) -> dict[str, Device]:
        return await self._threads.run(f"cannot look into the namespace of pod {uid}", _list, netns)

    async def join(self, uid: str, netns: Path, interface: str, mac: str) -> int | None:
        """Bridge CNI's `interface` in the pod's namespace to the guest's device, which gets the MAC address `mac`.

        An interrupted earlier call is completed. Returns the link's MTU; None if the namespace has no such
        interface.
        """
        return await self._threads.run(
            f"cannot join {interface} of pod {uid} to its guest", _join, uid, netns, interface, mac
        )

    async def give_back(self, uid: str, netns: Path, interface: str, ips: Iterable[str]) -> None:
        """Give CNI's interface the guest's addresses again, by which the plugin bridge finds its masquerade rules."""
        what = f"cannot give {interface} of pod {uid} its addresses again"
        await self._threads.run(what, _give_back, netns, interface, ips)

    async def remove(self, uid: str) -> None:
        """Remove the guest's devices from the node's namespace; succeeds if there are none."""
        await self._threads.run(f"cannot remove the devices of pod {uid}", _remove, uid)


def is_device(name: str) -> bool:
    """Return True if the node's network namespace has the device, whatever namespace the calling thread is in."""
    return Path(f"/sys/class/net/{name}").exists()


# --- on threads of their own ---


def _make(path: Path) -> None:
    namespaces.enter_new()
    with Netlink() as pod:
        pod.set_flags("lo", IFF_UP)
    namespaces.hold(path)


def _list(netns: Path) -> dict[str, Device]:
    with namespaces.entered(netns), Netlink() as pod:
        return pod.list_devices()


def _join(uid: str, netns: Path, interface: str, mac: str) -> int | None:
    with Netlink() as node, namespaces.entered(netns) as namespace, Netlink() as pod:
        inside = pod.list_devices()
        if interface not in inside:
            return None
        mtu = inside[interface].mtu
        _join_outside(node, uid, mac, mtu, namespace if INNER_DEVICE not in inside else None)
        if INNER_BRIDGE not in inside:
            pod.add_bridge(INNER_BRIDGE, mtu=mtu)
        _join_inside(pod, uid, interface)
        return mtu


def _join_outside(node: Netlink, uid: str, mac: str, mtu: int, namespace: int | None) -> None:
    """Make the devices in the node's namespace, as far as they are missing.

    `namespace`: descriptor of the pod's namespace, for the inner veth end; None if that end exists.
    """
    outer, guest = outer_device(uid), guest_device(uid)
    if namespace is not None:
        _delete(node, outer)  # its peer is in a lost namespace, which the kernel may still be removing
        node.add_veth(outer, mtu=mtu, peer=INNER_DEVICE, peer_namespace=namespace)
        node.set_no_ipv6_address(outer)
        node.set_flags(outer, IFF_UP)
    if namespace is not None or not is_device(guest):
        # Made here and not by libvirt (type='direct'), whose embedded driver crashes at the end of such a guest.
        node.add_macvtap(guest, mtu=mtu, mac=mac, on=outer)
        node.set_no_ipv6_address(guest)
    node.set_flags(guest, IFF_ALLMULTI | IFF_UP)


def _join_inside(pod: Netlink, uid: str, interface: str) -> None:
    pod.set_no_ipv6_address(INNER_BRIDGE)
    pod.set_mac(INNER_BRIDGE, stable_mac("bridge", uid))
    pod.set_no_ipv6_address(interface)
    pod.flush_addresses(interface)
    pod.set_mac(interface, stable_mac("port", uid))
    pod.set_no_ipv6_address(INNER_DEVICE)
    bridge = pod.get_index(INNER_BRIDGE)
    for name in (interface, INNER_DEVICE):
        # CNI's own bridge may be in hairpin mode and send broadcasts back: a bridge that learns would then
        # send frames for the guest to the wrong port. With two ports there is nothing to learn.
        pod.set_port(name, bridge)
    for name in (interface, INNER_DEVICE, INNER_BRIDGE):
        pod.set_flags(name, IFF_UP)


def _give_back(netns: Path, interface: str, ips: Iterable[str]) -> None:
    with namespaces.entered(netns), Netlink() as pod:
        for ip in ips if interface in pod.list_devices() else ():
            pod.add_address(interface, ip)


def _remove(uid: str) -> None:
    with Netlink() as node:
        _delete(node, outer_device(uid))


def _delete(node: Netlink, name: str) -> None:
    if not is_device(name):
        return
    try:
        node.delete(name)
    except OSError as error:
        if error.errno != errno.ENODEV:  # removed by the kernel meanwhile
            raise
