"""`PodLinks`: connects virtual machines to the node's pod network.

    pod network of the node ── eth0 ── br0 ── guest0 ═══ kxv<hash> ── kxp<hash> ── guest
                               └─ the pod's own namespace ─┘     └─ the node's namespace ─┘

CNI attaches a network namespace of the pod, as it does for a container. In this namespace CNI's interface
becomes a port of a bridge, and its address, routes and MAC are given to the guest. ``guest0`` and
``kxv<hash>`` are the two ends of a veth pair; ``kxp<hash>`` is a macvtap on ``kxv<hash>`` with CNI's MAC, which
the emulator opens. cloud-init configures the address and the routes in the guest. The bridge is in the pod's
namespace, because in the node's namespace br_netfilter would pass every frame of the guest through the node's
NAT rules a second time (decision 0002).

The pod's UID is enough to find everything: a mount on ``<state>/links/<uid>.netns`` keeps the namespace, the
devices' names contain a hash of the UID, and ``<uid>.json`` stores CNI's result, which cannot be read back from
the guest. The stored result is ignored if the namespace or a device no longer exists. When the namespace is
removed, the kernel removes ``guest0``, therefore its peer, and therefore the macvtap: nothing is left.

A guest may also get its address by DHCP (decision 0003): `serve` answers its requests.
"""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from weakref import WeakValueDictionary

import msgspec
import structlog

from kubeletx.api import (
    Host,
    Internal,
    InvalidPod,
    KubeletxError,
    NamespaceMode,
    PodNetwork,
    PodUid,
    PortMapping,
    SandboxSpec,
    Unavailable,
)
from kubeletx.linux.files import replace_unflushed

from .dhcp import lease_of
from .dhcp_sockets import DhcpSockets
from .links import GuestLink, to_link
from .names import INNER_BRIDGE, INNER_DEVICE, guest_device, stable_mac
from .namespaces import OwnThreads
from .netlink import Device
from .wiring import Wiring

log = structlog.get_logger(__name__)

TRUSTED_SECONDS = 5.0
"""Seconds for which a check of a pod's namespace is reused. Each check needs a thread, and one start of a pod
makes three.
"""
_NETNS = ".netns"
_RECORD = ".json"


class PodLinks:
    """Makes, finds and removes the links of one runtime's pods to the pod network.

    Calls for one pod run one after the other, calls for different pods in parallel.
    """

    def __init__(self, host: Host, *, wiring: Wiring | None = None) -> None:
        """Create the object; does no I/O. `wiring`: replaces the real one in tests; None: the real one."""
        self._host = host
        threads = OwnThreads()
        self._wiring = wiring or Wiring(threads)
        self._dhcp = DhcpSockets(threads)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._seen_whole: dict[str, float] = {}
        """Monotonic time of the last successful check of a pod's link, by pod UID."""

    @property
    def directory(self) -> Path:
        """Directory of the namespace files and of the records of links."""
        return self._host.state_directory / "links"

    async def attach(self, sandbox: SandboxSpec) -> GuestLink:
        """Return the pod's link; make it if it does not exist or is incomplete.

        What a failed call has made is used by the next call. Raises InvalidPod for a pod with hostNetwork,
        Unavailable if the node has no pod network or if CNI or the kernel refuses.
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
            if not self._wiring.is_held(netns):
                # After a power cut the namespace is gone, and CNI fails on a file that is not a namespace.
                netns.unlink(missing_ok=True)
                await network.delete(uid)
                self._record(uid).unlink(missing_ok=True)
                self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                netns.touch(mode=0o600)
                await self._wiring.make_namespace(uid, netns)
            address = await network.add(
                uid, sandbox.name, sandbox.namespace, str(netns), _port_mappings(sandbox.ports)
            )
            # The MAC is not read from the interface, which no longer has it after the first call.
            mac = (address.mac or stable_mac("guest", uid)).lower()
            mtu = await self._wiring.join(uid, netns, address.interface, mac)
            if mtu is None:
                raise Internal(f"pod network: CNI made no {address.interface} in the namespace of pod {uid}")
            link = to_link(address, device=guest_device(uid), mac=mac, mtu=mtu, dns=sandbox.dns)
            self._write(uid, link)
            self._seen_whole[uid] = self._host.clock.monotonic()
            return link

    async def serve(self, uid: PodUid) -> None:
        """Start to answer the guest's DHCP requests, until `close` or the end of this process.

        A second call does nothing. Raises Unavailable if the socket cannot be opened.
        """
        async with self._lock(uid):
            link = self._read(uid)
            if link is None or not self._wiring.is_held(self._netns(uid)):
                return
            lease = lease_of(link, stable_mac("dhcp", uid))
            if lease is not None:
                await self._dhcp.open(uid, self._netns(uid), lease)

    def close(self) -> None:
        """Stop answering DHCP requests. The links are not removed."""
        self._dhcp.close_all()

    async def find(self, uid: PodUid) -> GuestLink | None:
        async with self._lock(uid):
            return await self._find(uid)

    def is_there(self, uid: PodUid) -> bool:
        """Return True if the link's namespace and device exist.

        This check is quick and needs no thread, for lists. `check` is complete.
        """
        return self._wiring.is_held(self._netns(uid)) and self._wiring.has_device(guest_device(uid))

    async def check(self, uid: PodUid) -> bool:
        """Return True if the link is complete: namespace, both devices, and CNI's interface on the bridge, all up.

        CNI's CHECK is not used: it would report the missing address, which the guest has.
        """
        return await self.find(uid) is not None

    async def release(self, uid: PodUid) -> None:
        """Release the pod's addresses and ports and remove all its devices; succeeds if there are none."""
        async with self._lock(uid):
            self._dhcp.close(uid)
            netns = self._netns(uid)
            self._seen_whole.pop(uid, None)
            if not self._wiring.is_held(netns):
                netns.unlink(missing_ok=True)
            elif link := self._read(uid):
                try:
                    await self._wiring.give_back(uid, netns, link.name, link.ips)
                except KubeletxError as error:  # a rule that stays is better than a pod that cannot end
                    log.warning("Left rules of a pod's addresses behind", uid=uid, err=str(error))
            if self._host.pod_network is not None:
                await self._host.pod_network.delete(uid)
            await self._wiring.remove(uid)
            self._record(uid).unlink(missing_ok=True)
            while self._wiring.is_held(netns):
                await self._wiring.unmount(uid, netns)
            netns.unlink(missing_ok=True)

    async def list_uids(self) -> tuple[PodUid, ...]:
        """Return the UIDs of all pods with a namespace or a record here, for the clean-up after a crash."""
        if not self.directory.is_dir():
            return ()
        names = (path.name for path in self.directory.iterdir() if not path.name.startswith("."))
        return tuple(
            PodUid(uid) for uid in sorted({name.removesuffix(_NETNS).removesuffix(_RECORD) for name in names})
        )

    # --- private ---

    def _lock(self, uid: str) -> asyncio.Lock:
        return self._locks.setdefault(uid, asyncio.Lock())

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
        if link is None or not self._wiring.is_held(netns) or not self._wiring.has_device(link.source):
            return None
        now = self._host.clock.monotonic()
        if now - self._seen_whole.get(uid, -math.inf) < TRUSTED_SECONDS:
            return link
        self._seen_whole.pop(uid, None)
        if not _is_whole(await self._wiring.list_devices(uid, netns), link.name):
            return None
        self._seen_whole[uid] = now
        return link

    def _read(self, uid: str) -> GuestLink | None:
        try:
            return msgspec.json.decode(self._record(uid).read_bytes(), type=GuestLink)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError):
            return None  # a half-written record after a crash: the next attach writes it again

    def _write(self, uid: str, link: GuestLink) -> None:
        replace_unflushed(self._record(uid), msgspec.json.encode(link))


def _is_whole(inside: dict[str, Device], interface: str) -> bool:
    """Return True if `interface` and `INNER_DEVICE` are ports of the bridge and all three devices are up.

    `inside`: devices in the pod's namespace.
    """
    if not {interface, INNER_DEVICE, INNER_BRIDGE} <= inside.keys():
        return False
    bridge, ports = inside[INNER_BRIDGE], (inside[interface], inside[INNER_DEVICE])
    return all(device.is_up for device in (*ports, bridge)) and all(
        port.master == bridge.index for port in ports
    )


def _port_mappings(ports: tuple[PortMapping, ...]) -> list[dict[str, object]]:
    """Return the pod's host ports in the form of CNI's portMappings capability."""
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
