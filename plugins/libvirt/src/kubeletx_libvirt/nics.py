"""Attaches and detaches network interfaces of a running machine (`SupportsNics`).

The domain's definition contains the requested interfaces, the running domain the present ones. An interface
has the same alias in both (`network.links`). If it is in both, it is attached. If it is only in the
definition, it is attaching. If it is only in the running domain, it is detaching, until the guest releases it
and libvirt sends the device-removed event. The pod's spec of an interface (network, port, address) is stored
in `UnitRecord.nics`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import libvirt
import msgspec

from kubeletx.api import InvalidPod, Nic, NicState, NicStatus, Unavailable, UnitId, Unsupported
from kubeletx.api.names import RUNTIME_UNSUPPORTED
from kubeletx_libvirt.addresses import NO_POD_LINK, Holder
from kubeletx_libvirt.domain.devices import interface_aliases
from kubeletx_libvirt.domain_reader import UnitDomain, read_definition
from kubeletx_libvirt.errors import code_of
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.network.links import GuestLink, interface_alias, interface_xml
from kubeletx_libvirt.network.nics import resolve_nics
from kubeletx_libvirt.units import Units

DETACH_SECONDS = 12.0
ASK_AGAIN_SECONDS = 5.5
"""Seconds until the next unplug request.

QEMU refuses a second request within 5 s, and a booting guest ignores the first.
"""


class Nics(Part):
    """Attaches, detaches and lists network interfaces of one runtime's machines (`SupportsNics`)."""

    def __init__(self, machinery: Machinery, units: Units) -> None:
        super().__init__(machinery)
        self._units = units

    async def attach_nic(self, unit_id: UnitId, nic: Nic) -> None:
        """Add the interface to the definition and, if the machine is on, to the running domain.

        Succeeds if both already have an interface of this name. Raises InvalidPod for an interface that this
        node cannot provide.
        """
        async with self._units.alone(unit_id):
            domain = await self._domains.get(unit_id)
            live, kept = await self._aliases(unit_id)
            alias = interface_alias(nic.name)
            if alias in kept and (live is None or alias in live):
                return
            link = await self._resolve(unit_id, domain, nic)
            identity = domain.identity
            self._addresses.hold(Holder(identity.uid, f"{identity.namespace}/{identity.pod}"), (link,))
            await self._records.change_unit(unit_id, nics=(*self._without(unit_id, nic.name), nic))
            to_live, to_kept = live is not None and alias not in live, alias not in kept
            await self._connection.use(_attach, unit_id, interface_xml(link), to_live, to_kept)

    async def detach_nic(self, unit_id: UnitId, name: str) -> None:
        """Remove the interface from the definition and request its unplug; succeeds if there is no such interface.

        Returns when the guest has released the interface, or after `DETACH_SECONDS`. Raises Unsupported for
        the pod network's interface.
        """
        async with self._units.alone(unit_id):
            domain = await self._domains.find(unit_id)
            if domain is None:
                return
            live, kept = await self._aliases(unit_id)
            alias = interface_alias(name)
            if alias not in kept and alias not in (live or {}):
                return
            await self._refuse_own(domain, name, (live or {}) | kept)
            if alias in kept:
                await self._connection.use(_detach, unit_id, alias, libvirt.VIR_DOMAIN_AFFECT_CONFIG)
            going = [nic for nic in self._nics(unit_id) if nic.name == name]
            await self._records.change_unit(unit_id, nics=self._without(unit_id, name))
            if alias not in (live or {}) or await self._unplug(unit_id, alias):
                for nic in going:
                    self._addresses.release(unit_id, nic)

    async def list_nics(self, unit_id: UnitId) -> Sequence[NicStatus]:
        domain = await self._domains.get(unit_id)
        live, kept = await self._aliases(unit_id)
        said = {interface_alias(nic.name): nic for nic in self._nics(unit_id)}
        return list_interfaces(live, kept, said, await self._links.find(domain.identity.uid))

    async def _unplug(self, unit_id: UnitId, alias: str) -> bool:
        """Request the unplug repeatedly.

        Returns True once the guest has released the device, False after `DETACH_SECONDS`.
        """
        with self._waits.expect(unit_id, "device-removed") as heard, contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DETACH_SECONDS):
                while True:
                    await self._connection.use(_detach, unit_id, alias, libvirt.VIR_DOMAIN_AFFECT_LIVE)
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(ASK_AGAIN_SECONDS):
                            await heard.wait()
                    heard.clear()
                    live, _ = await self._aliases(unit_id)
                    if alias not in (live or {}):
                        return True
        return False

    async def _aliases(self, unit_id: UnitId) -> tuple[dict[str, str] | None, dict[str, str]]:
        """Return the MAC addresses of the interfaces, by alias: in the running domain, and in the definition.

        The first is None if the domain is off.
        """
        is_on, now, then = await self._connection.use(_read_both, unit_id)
        return (interface_aliases(now) if is_on else None), interface_aliases(then)

    async def _resolve(self, unit_id: UnitId, domain: UnitDomain, nic: Nic) -> GuestLink:
        record = self._records.units.get(unit_id)
        machine = record.machine if record is not None else None
        if machine is None:
            raise Unsupported(f"the record of machine {domain.identity.pod} is lost; recreate the pod")
        own = await self._links.find(domain.identity.uid) or NO_POD_LINK
        resolved = resolve_nics(
            msgspec.structs.replace(machine, nics=(nic,)),
            own,
            networks=self._settings.networks,
            ports=self._settings.ports,
            unknown=self._settings.unknown_network,
            uid=domain.identity.uid,
        )
        link = next(candidate for candidate in resolved.links if candidate.name == nic.name)
        if own is NO_POD_LINK and link.source == own.source:
            raise Unavailable(
                f"pod {domain.identity.pod} has no pod network for interface {nic.name} to join"
            )
        if link.source == own.source:
            raise InvalidPod(
                field=f"spec.nics[{nic.name}]",
                problem="a second interface on the pod network, which gives a pod one address",
                fix="name another network in subnetName",
                reason=RUNTIME_UNSUPPORTED,
            )
        return link

    async def _refuse_own(self, domain: UnitDomain, name: str, macs: Mapping[str, str]) -> None:
        own = await self._links.find(domain.identity.uid)
        is_own = own is not None and macs.get(interface_alias(name), "").lower() == own.mac.lower()
        if name == "eth0" or is_own:
            raise Unsupported(
                f"interface {name} of machine {domain.identity.pod} is the pod network's own and stays with the pod"
            )

    def _nics(self, unit_id: UnitId) -> tuple[Nic, ...]:
        record = self._records.units.get(unit_id)
        return record.present_nics if record is not None else ()

    def _without(self, unit_id: UnitId, name: str) -> tuple[Nic, ...]:
        return tuple(nic for nic in self._nics(unit_id) if nic.name != name)


def list_interfaces(
    live: Mapping[str, str] | None,
    kept: Mapping[str, str],
    said: Mapping[str, Nic],
    own: GuestLink | None = None,
) -> list[NicStatus]:
    """Merge the interfaces of the running domain and of the definition into one list.

    `live`: MAC addresses by alias in the running domain; None: the domain is off. `kept`: the same in the
    definition. `said`: the pod's specs of interfaces by alias. `own`: the pod's link to the pod network,
    whose addresses are in no spec; None: unknown.
    """
    listed = []
    for alias, mac in {**kept, **(live or {})}.items():
        if not alias:
            continue
        state = NicState.ATTACHED
        if alias not in kept:
            state = NicState.DETACHING
        elif live is not None and alias not in live:
            state = NicState.ATTACHING
        nic = said.get(alias) or Nic(name=alias.removeprefix("ua-"))
        listed.append(
            NicStatus(
                name=nic.name,
                state=state,
                mac=mac,
                network=nic.network,
                port_id=nic.port_id,
                ips=own.ips if own is not None and _is_own(nic, mac, own) else _asked(nic),
            )
        )
    return listed


def _is_own(nic: Nic, mac: str, own: GuestLink) -> bool:
    """Return True if this is the interface on the pod network.

    It has the MAC address of the pod's link; or, if a port defines another MAC address, the name of the link.
    """
    return mac.lower() == own.mac.lower() or (nic.name == own.name and not nic.network)


def _asked(nic: Nic) -> tuple[str, ...]:
    return (nic.ip_address,) if nic.ip_address else ()


# --- on the host's threads ---


def _read_both(handle: libvirt.virConnect, uuid: str) -> tuple[bool, str, str]:
    is_on = bool(handle.lookupByUUIDString(uuid).isActive())
    return is_on, read_definition(handle, uuid), read_definition(handle, uuid, inactive=True)


def _attach(handle: libvirt.virConnect, uuid: str, text: str, live: bool, kept: bool) -> None:
    flags = libvirt.VIR_DOMAIN_AFFECT_LIVE if live else 0
    flags |= libvirt.VIR_DOMAIN_AFFECT_CONFIG if kept else 0
    if flags:
        handle.lookupByUUIDString(uuid).attachDeviceFlags(text, flags)


def _detach(handle: libvirt.virConnect, uuid: str, alias: str, flags: int) -> None:
    try:
        handle.lookupByUUIDString(uuid).detachDeviceAlias(alias, flags)
    except libvirt.libvirtError as error:
        if code_of(error) == libvirt.VIR_ERR_DEVICE_MISSING:
            return
        if "in the process of unplug" not in str(error):  # QEMU: already requested
            raise
