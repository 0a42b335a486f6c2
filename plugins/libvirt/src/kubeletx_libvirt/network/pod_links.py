"""`PodLinks`: a virtual machine's place in the node's pod network.

    pod network of the node ── eth0 ── br0 ── guest0 ═══ kxv<hash> ── kxp<hash> ── guest
                               └─ the pod's own namespace ─┘     └─ the node's namespace ─┘

CNI attaches a namespace of the pod, as it would a container's. There CNI's interface becomes the port of a
bridge, and its address, routes and MAC go to the guest: the macvtap ``kxp<hash>``, which the emulator opens, has
CNI's MAC, cloud-init sets the rest. The bridge is in the pod's namespace and not in the node's, where
br_netfilter would lead every frame of the guest through the node's NAT rules once too often (decision 0002).

Everything is found by the pod's UID: the namespace is held by a mount on ``<state>/links/<uid>.netns``, the
device's name is a hash of it. ``<uid>.json`` next to it keeps CNI's result, since the guest's configuration can
not be read back; it is used only while namespace and devices exist. All devices are children of
the namespace, so nothing is left when the namespace is removed.

A guest that asks for its address by DHCP gets it too (decision 0003): `serve` listens on its link.
"""

from __future__ import annotations

import asyncio
import math
import os
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec

from kubeletx.api import (
    Host,
    Internal,
    InvalidPod,
    NamespaceMode,
    PodNetwork,
    PodUid,
    PortMapping,
    SandboxSpec,
    Unavailable,
)

from .convert import to_link
from .dhcp import lease_of
from .dhcp_sockets import DhcpSockets
from .links import GuestLink
from .names import INNER_BRIDGE, INNER_DEVICE, guest_device, stable_mac
from .namespaces import OwnThreads
from .netlink import Device
from .wiring import Wiring, is_device

TRUSTED_SECONDS = 5.0
"""Seconds for which a check of a pod's namespace is reused: each takes a thread, and one start needs three."""
_NETNS = ".netns"
_RECORD = ".json"


class PodLinks:
    """Makes, finds and removes the network links of one runtime's pods.

    Calls for one pod are serial; pods are handled in parallel.
    """

    def __init__(self, host: Host, *, wiring: Wiring | None = None) -> None:
        """Does no I/O."""
        self._host = host
        threads = OwnThreads()
        self._wiring = wiring or Wiring(threads)
        self._dhcp = DhcpSockets(threads)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._seen_whole: dict[str, float] = {}
        """Monotonic time of the last complete check, by pod UID."""

    @property
    def directory(self) -> Path:
        """Directory of namespaces and records."""
        return self._host.state_directory / "links"

    async def attach(self, sandbox: SandboxSpec) -> GuestLink:
        """Make or find the pod's link. A failed call leaves only what the next one finishes.

        Raises InvalidPod for a pod with host network, Unavailable without a pod network or if CNI or the kernel
        refuses.
        """
        if sandbox.namespaces.network is NamespaceMode.NODE:
            raise InvalidPod(
                field="spec.hostNetwork",
                problem="a virtual machine cannot use the node's own network",
                fix="remove hostNetwork; ports[].hostPort publishes single ports on the node",
            )
        network = self._network()
        uid = sandbox.uid
        async with self._lock(uid):
            link = await self._find(uid)
            if link is not None:
                return link
            self._dhcp.close(uid)  # its lower device may be created again
            netns = self._netns(uid)
            if not _is_held(netns):
                # After a power cut: what CNI attached is gone, and it takes no file that is no namespace.
                netns.unlink(missing_ok=True)
                await network.delete(uid)
                self._record(uid).unlink(missing_ok=True)
                _make_file(netns)
                await self._wiring.make_namespace(uid, netns)
            address = await network.add(
                uid, sandbox.name, sandbox.namespace, str(netns), _port_mappings(sandbox.ports)
            )
            mtu, mac = await self._hand_over(uid, netns, address.interface, address.mac)
            link = to_link(address, device=guest_device(uid), mac=mac, mtu=mtu, dns=sandbox.dns)
            self._write(uid, link)
            self._seen_whole[uid] = self._host.clock.monotonic()
            return link

    async def serve(self, uid: PodUid) -> None:
        """Answer the guest's DHCP requests while this process lives; idempotent. Raises Unavailable."""
        async with self._lock(uid):
            link = self._read(uid)
            if link is None or not _is_held(self._netns(uid)):
                return
            lease = lease_of(link, stable_mac("dhcp", uid))
            if lease is not None:
                await self._dhcp.open(uid, self._netns(uid), lease)

    def close(self) -> None:
        """Stop answering DHCP requests; links stay."""
        self._dhcp.close_all()

    async def find(self, uid: PodUid) -> GuestLink | None:
        """The pod's link if it is complete, else None."""
        async with self._lock(uid):
            return await self._find(uid)

    def is_there(self, uid: PodUid) -> bool:
        """Return True if namespace and device exist.

        This check is quick and needs no thread, for lists; `check` is complete.
        """
        return _is_held(self._netns(uid)) and is_device(guest_device(uid))

    async def check(self, uid: PodUid) -> bool:
        """Return True if the link is complete: namespace, both devices, and CNI's interface on the bridge, all up.

        CNI's CHECK is not used: it would miss the address, which the guest has.
        """
        return await self.find(uid) is not None

    async def release(self, uid: PodUid) -> None:
        """Release the pod's addresses and ports and remove every device; succeeds if there is nothing."""
        async with self._lock(uid):
            self._dhcp.close(uid)
            netns = self._netns(uid)
            self._seen_whole.pop(uid, None)
            if not _is_held(netns):
                netns.unlink(missing_ok=True)
            if self._host.pod_network is not None:
                await self._host.pod_network.delete(uid)
            await self._wiring.remove(uid)
            self._record(uid).unlink(missing_ok=True)
            while _is_held(netns):
                await self._wiring.hold_no_more(uid, netns)
            netns.unlink(missing_ok=True)

    async def list_uids(self) -> tuple[PodUid, ...]:
        """UIDs of all pods that have a namespace or a record here, for the clean-up after a crash."""
        return _list_uids(self.directory)

    # --- private ---

    def _lock(self, uid: str) -> asyncio.Lock:
        lock = self._locks.get(uid)
        if lock is None:
            lock = self._locks[uid] = asyncio.Lock()
        return lock

    def _netns(self, uid: str) -> Path:
        return self.directory / f"{uid}{_NETNS}"

    def _record(self, uid: str) -> Path:
        return self.directory / f"{uid}{_RECORD}"

    def _network(self) -> PodNetwork:
        if self._host.pod_network is None:
            raise Unavailable("no pod network for virtual machines; set --cni-conf-dir and --cni-bin-dir")
        return self._host.pod_network

    async def _find(self, uid: str) -> GuestLink | None:
        link = self._read(uid)
        netns = self._netns(uid)
        if link is None or not _is_held(netns) or not is_device(link.source):
            return None
        now = self._host.clock.monotonic()
        if now - self._seen_whole.get(uid, -math.inf) < TRUSTED_SECONDS:
            return link
        self._seen_whole.pop(uid, None)
        if not _is_whole(await self._wiring.list_devices(uid, netns), link.name):
            return None
        self._seen_whole[uid] = now
        return link

    async def _hand_over(self, uid: str, netns: Path, interface: str, mac: str) -> tuple[int, str]:
        """Bridge CNI's interface to the guest's device. Returns the link's MTU and the guest's MAC.

        After the first call the interface no longer has CNI's MAC, so the one in CNI's result is used; for networks
        that give none, a stable generated one.
        """
        mac = (mac or stable_mac("guest", uid)).lower()
        mtu = await self._wiring.join(uid, netns, interface, mac)
        if mtu is None:
            raise Internal(f"pod network: CNI made no {interface} in the namespace of pod {uid}")
        return mtu, mac

    def _read(self, uid: str) -> GuestLink | None:
        try:
            return msgspec.json.decode(self._record(uid).read_bytes(), type=GuestLink)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None  # a torn record of a crash: the next attach writes it again

    def _write(self, uid: str, link: GuestLink) -> None:
        path = self._record(uid)
        new = path.with_name(f".{path.name}")
        new.write_bytes(msgspec.json.encode(link))
        new.replace(path)


def _list_uids(directory: Path) -> tuple[PodUid, ...]:
    if not directory.is_dir():
        return ()
    names = (path.name for path in directory.iterdir() if not path.name.startswith("."))
    return tuple(
        PodUid(uid) for uid in sorted({name.removesuffix(_NETNS).removesuffix(_RECORD) for name in names})
    )


def _is_held(netns: Path) -> bool:
    """Return True if a namespace is mounted there; after a power cut only the file is left."""
    return os.path.ismount(netns)


def _make_file(path: Path) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)


def _is_whole(inside: dict[str, Device], interface: str) -> bool:
    """Return True if both ports are on the bridge and all three are up."""
    if not {interface, INNER_DEVICE, INNER_BRIDGE} <= inside.keys():
        return False
    bridge, ports = inside[INNER_BRIDGE], (inside[interface], inside[INNER_DEVICE])
    return all(one.is_up for one in (*ports, bridge)) and all(port.master == bridge.index for port in ports)


def _port_mappings(ports: tuple[PortMapping, ...]) -> list[dict[str, object]]:
    """Published ports in the form of CNI's portMappings capability."""
    return [
        {
            "hostPort": port.host_port,
            "containerPort": port.container_port,
            "protocol": port.protocol.lower(),
            "hostIP": port.host_ip,
        }
        for port in ports
        if port.host_port
    ]
