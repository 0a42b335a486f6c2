"""Static addresses on the operator's networks: no two machines may request the same address.

No server assigns these addresses, and two machines with the same address disturb each other. The reserved
addresses are computed from the records of created machines; those of machines that are being created are in
memory. A pod that has ended reserves none.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from ipaddress import ip_interface
from typing import NamedTuple, TypeAlias

import msgspec

from kubeletx.api import InvalidPod, Machine, Nic, PodUid, UnitId
from kubeletx_libvirt.config import Settings
from kubeletx_libvirt.domain.metadata import Identity
from kubeletx_libvirt.domain_reader import DomainReader
from kubeletx_libvirt.network.links import GuestLink, LinkKind
from kubeletx_libvirt.network.nics import resolve_nics
from kubeletx_libvirt.records import Records

Address: TypeAlias = tuple[str, str]
"""The name of the bridge or libvirt network, and the IP address without its prefix length."""


class Holder(NamedTuple):
    """The pod for which an address is reserved. `pod`: NAMESPACE/NAME."""

    uid: PodUid
    pod: str


NO_POD_LINK = GuestLink(name="eth0", kind=LinkKind.BRIDGE, source="", mac="")


class Addresses:
    """Reserves static addresses on the operator's networks for the machines of one runtime."""

    def __init__(self, settings: Settings, records: Records, domains: DomainReader) -> None:
        self._settings = settings
        self._records = records
        self._domains = domains
        self._holders: dict[Address, Holder] = {}

    def hold(self, holder: Holder, links: Sequence[GuestLink]) -> None:
        """Reserve the static addresses of a pod's links.

        Raises InvalidPod, naming the other pod, if one of the addresses is reserved for another pod. The
        error has no permanent reason, since the other pod may end.
        """
        wanted = dict(static_addresses(links))
        if not wanted:
            return
        alive = {sandbox.spec.uid for sandbox in self._records.sandboxes.values() if not sandbox.is_stopped}
        self._holders = {key: kept for key, kept in self._holders.items() if kept.uid in alive}
        others = {**self._made(alive), **self._holders}
        for address, name in wanted.items():
            other = others.get(address)
            if other is not None and other.uid != holder.uid:
                network, ip = address
                raise InvalidPod(
                    obj=f"pod {holder.pod}",
                    field=f"spec.nics[{name}].ipAddress",
                    problem=f"{ip} on {network} is the address of pod {other.pod}",
                    fix="choose another, or delete that pod",
                )
        self._holders.update(dict.fromkeys(wanted, holder))

    def release(self, unit_id: UnitId, nic: Nic) -> None:
        """Release the addresses of a network interface that has been removed from the machine and its record."""
        identity, record = self._domains.identity(unit_id), self._records.units.get(unit_id)
        if identity is None or record is None or record.machine is None:
            return
        for address, _ in static_addresses(self._links(record.machine, nic, identity)):
            holder = self._holders.get(address)
            if holder is not None and holder.uid == identity.uid:
                del self._holders[address]

    def _made(self, alive: Container[PodUid]) -> dict[Address, Holder]:
        holders: dict[Address, Holder] = {}
        for unit_id, record in self._records.units.items():
            identity, machine = self._domains.identity(unit_id), record.machine
            if identity is None or identity.uid not in alive or machine is None:
                continue
            links = [link for nic in record.present_nics for link in self._links(machine, nic, identity)]
            holder = Holder(identity.uid, f"{identity.namespace}/{identity.pod}")
            holders.update((address, holder) for address, _ in static_addresses(links))
        return holders

    def _links(self, machine: Machine, nic: Nic, identity: Identity) -> tuple[GuestLink, ...]:
        """Return the links of one interface to the operator's networks.

        There is none on the pod network, or if the settings no longer have the interface's network.
        """
        try:
            return resolve_nics(
                msgspec.structs.replace(machine, nics=(nic,)),
                NO_POD_LINK,
                networks=self._settings.networks,
                ports=self._settings.ports,
                uid=identity.uid,
            ).links
        except InvalidPod:
            return ()


def static_addresses(links: Sequence[GuestLink]) -> Iterator[tuple[Address, str]]:
    """Yield each address that a pod requested on an operator's network, with the name of the guest's interface."""
    for link in links:
        if link.kind is not LinkKind.DIRECT and link.source:
            for address in link.addresses:
                yield (link.source, str(ip_interface(address).ip)), link.name
