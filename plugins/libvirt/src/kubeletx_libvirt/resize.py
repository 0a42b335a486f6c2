"""Resizes a running machine (`SupportsResize`).

vCPUs are hotplugged up to the maximum with which the machine was made. Memory is changed by the balloon, up
to the machine's maximum. Both need the guest's cooperation: it may release resources later, only in part, or
never. So `update_resources` stores the request (`UnitRecord.asked`), starts the change in the running domain
and in its definition, and returns. The granted size (`UnitRecord.resources`) is read from libvirt then, and
after every event about vCPUs or memory.

vCPUs can only be added to an emulated guest (domain type `qemu`): QEMU's emulation cannot safely remove one,
so such a request is refused before anything is changed. So is less memory than the guest uses: its balloon
would take memory until the guest ends programs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

import libvirt
import msgspec
import structlog

from kubeletx.api import InvalidPod, Machine, Resources, UnitId, UnitState, Unsupported
from kubeletx_libvirt.client import DomainEvent
from kubeletx_libvirt.domain.sizing import MIB, Size
from kubeletx_libvirt.domain_reader import read_definition
from kubeletx_libvirt.errors import code_of
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.records import UnitRecord
from kubeletx_libvirt.units import Units

log = structlog.get_logger(__name__)

MIN_MEMORY_BYTES = 16 * MIB
"""Least memory of a running guest that does not report how much it uses: firmware and a small kernel."""


class Resizes(Part):
    """Changes and measures vCPUs and memory of one runtime's machines (`SupportsResize`)."""

    def __init__(self, machinery: Machinery, units: Units) -> None:
        super().__init__(machinery)
        self._units = units

    async def update_resources(self, unit_id: UnitId, resources: Resources) -> None:
        """Store and request a new size; the guest may follow later.

        A field of `resources` that is None is left unchanged. Raises InvalidPod above the machine's maximums,
        and for less memory than the guest needs; Unsupported for fewer vCPUs of a running emulated guest.
        """
        async with self._units.alone(unit_id):
            domain = await self._domains.get(unit_id)
            record = self._records.units[unit_id]
            wanted = merged(record.asked or record.spec.resources, resources)
            size = self._size_of(wanted, _machine(record))
            check_within(size, record.resources)
            if self._domains.state(unit_id, domain) in (UnitState.RUNNING, UnitState.PAUSED):
                text = await self._connection.use(read_definition, unit_id)
                if (why := refusal(text, size)) is not None:
                    raise Unsupported(why)
                check_memory(size, await self._connection.use(_memory, unit_id))
            await self._records.change_unit(unit_id, asked=wanted)
            await self._connection.use(_apply, unit_id, size)
            await self.measure(unit_id)

    async def note(self, event: DomainEvent) -> None:
        if event.kind in ("memory", "device-removed"):
            await self.catch_up(UnitId(event.uuid))

    async def catch_up(self, unit_id: UnitId) -> None:
        """Measure the machine's size if it was resized, or if its memory differs from the spec.

        The size of such a machine may change without an event.
        """
        if self._is_awaited(unit_id):
            await self.measure(unit_id)

    def _is_awaited(self, unit_id: UnitId) -> bool:
        record = self._records.units.get(unit_id)
        if record is None:
            return False
        if record.asked is not None:
            return True
        # Measured after a snapshot's restore, before the booting guest released its surplus memory.
        wanted = self._size_of(record.spec.resources, _machine(record)).memory_bytes
        return record.resources.get("memory_bytes", wanted) != wanted

    async def measure(self, unit_id: UnitId) -> None:
        if unit_id not in self._records.units:
            return
        seen = await self._connection.use(_granted, unit_id)
        record = self._records.units.get(unit_id)
        if record is not None and (resources := granted_now(record, seen)) != record.resources:
            await self._records.change_unit(unit_id, resources=resources)
            log.info("Resized machine", unit=unit_id, **resources)


def _machine(record: UnitRecord) -> Machine:
    assert record.machine is not None
    return record.machine


def merged(old: Resources, new: Resources) -> Resources:
    """Return the resources `old` with the fields that `new` sets.

    If `new` sets any CPU limit, request or quota, all of them are taken from `new`.
    """
    said: dict[str, Any] = {
        field: value
        for field in ("cpu_shares", "memory_limit_bytes", "memory_request_bytes")
        if (value := getattr(new, field)) is not None
    }
    cpu = ("cpu_limit_millicores", "cpu_request_millicores", "cpu_quota_us", "cpu_period_us")
    if any(getattr(new, field) is not None for field in cpu):
        said.update({field: getattr(new, field) for field in cpu})
    return msgspec.structs.replace(old, **said)


def check_within(size: Size, made_with: dict[str, int]) -> None:
    """Raise InvalidPod if the size is above the machine's maximums.

    `made_with`: the machine's granted resources, which contain the maximums.
    """
    most_vcpus, most_memory = made_with.get("max_vcpus", 0), made_with.get("max_memory_bytes", 0)
    if most_vcpus and size.vcpus > most_vcpus:
        raise InvalidPod(
            field="resources.limits[cpu]",
            problem=f"{size.vcpus} processors are more than the {most_vcpus} that the machine can grow to",
            fix="ask for less, or recreate the pod with annotation kubeletx.io/vm-max-cpus",
        )
    if most_memory and size.memory_bytes > most_memory:
        raise InvalidPod(
            field="resources.limits[memory]",
            problem=f"{size.memory_bytes // MIB} MiB are more than the {most_memory // MIB} MiB that the machine "
            "can grow to",
            fix="ask for less, or recreate the pod with annotation kubeletx.io/vm-max-memory",
        )


def check_memory(size: Size, seen: Mapping[str, int]) -> None:
    """Raise InvalidPod if a running guest cannot do with this size.

    `seen`: memory statistics of the domain in KiB; without ``usable`` the guest does not report them.
    """
    has = seen.get("actual", 0) * 1024
    if size.memory_bytes >= has:
        return
    least, why = MIN_MEMORY_BYTES, "no guest runs with less"
    if "usable" in seen:
        used = has - seen["usable"] * 1024
        if used > least:
            least, why = used, "the guest uses that much now"
    if size.memory_bytes < least:
        least_mib = -(-least // MIB)
        raise InvalidPod(
            field="resources.limits[memory]",
            problem=f"{size.memory_bytes // MIB} MiB are less than {least_mib} MiB, and {why}",
            fix=f"ask for {least_mib} MiB or more, or end programs in the guest first",
        )


def refusal(text: str, size: Size) -> str | None:
    """Return the reason that a running machine cannot get this size; None if it can.

    `text`: the domain's XML.
    """
    root = ElementTree.fromstring(text)
    vcpu = root.find("vcpu")
    if root.get("type") != "qemu" or vcpu is None:
        return None
    has = int(vcpu.get("current") or vcpu.text or 0)
    if size.vcpus >= has:
        return None
    return (
        f"the guest is emulated and has {has} processors, {size.vcpus} are requested; a running emulated guest "
        f"cannot lose processors: request {has}, or recreate the pod with less"
    )


def granted_now(record: UnitRecord, seen: dict[str, int]) -> dict[str, int]:
    """Merge the size that libvirt reports (`seen`) into the unit's granted resources.

    The CPU limit is the requested one if the guest has the vCPUs for it; else it is one CPU for each vCPU
    that the guest has.
    """
    resources = record.resources | seen
    asked = record.asked or record.spec.resources
    vcpus = resources.get("vcpus", 0)
    limit = asked.cpu_limit_millicores
    if limit and vcpus == -(-limit // 1000):
        resources["cpu_limit_millicores"] = limit
    elif vcpus:
        resources["cpu_limit_millicores"] = vcpus * 1000
    if "memory_bytes" in resources:
        resources["memory_limit_bytes"] = resources["memory_bytes"]
    return resources


# --- on the host's threads ---


def _apply(handle: libvirt.virConnect, uuid: str, size: Size) -> None:
    domain = handle.lookupByUUIDString(uuid)
    live = bool(domain.isActive())
    kept = libvirt.VIR_DOMAIN_AFFECT_CONFIG
    tune: dict[str, int] = {}
    if size.shares is not None:
        tune["cpu_shares"] = size.shares
    if size.quota_us is not None:
        tune |= {"vcpu_period": size.period_us, "vcpu_quota": size.quota_us}
    elif domain.schedulerParametersFlags(kept).get("vcpu_quota", 0) > 0:
        tune["vcpu_quota"] = -1
    if tune:
        domain.setSchedulerParametersFlags(tune, kept)
        if live:
            domain.setSchedulerParametersFlags(tune, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    domain.setVcpusFlags(size.vcpus, kept)
    domain.setMemoryFlags(size.memory_bytes // 1024, kept)
    if not live:
        return
    if domain.vcpusFlags(libvirt.VIR_DOMAIN_AFFECT_LIVE) != size.vcpus:
        _change_vcpus(domain, size.vcpus)
    domain.setMemoryFlags(size.memory_bytes // 1024, libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _change_vcpus(domain: libvirt.virDomain, vcpus: int) -> None:
    try:
        domain.setVcpusFlags(vcpus, libvirt.VIR_DOMAIN_AFFECT_LIVE)
    except libvirt.libvirtError as error:
        if code_of(error) not in (
            libvirt.VIR_ERR_OPERATION_TIMEOUT,  # the guest has not released it yet: an event follows
            libvirt.VIR_ERR_OPERATION_FAILED,
        ):
            raise
    with contextlib.suppress(
        libvirt.libvirtError
    ):  # without a guest agent the guest's own rules bring it online
        domain.setVcpusFlags(vcpus, libvirt.VIR_DOMAIN_VCPU_GUEST | libvirt.VIR_DOMAIN_AFFECT_LIVE)


def _memory(handle: libvirt.virConnect, uuid: str) -> dict[str, int]:
    with contextlib.suppress(libvirt.libvirtError):  # the driver has no statistics
        return dict(handle.lookupByUUIDString(uuid).memoryStats())
    return {}


def _granted(handle: libvirt.virConnect, uuid: str) -> dict[str, int]:
    domain = handle.lookupByUUIDString(uuid)
    flag = libvirt.VIR_DOMAIN_AFFECT_LIVE if domain.isActive() else libvirt.VIR_DOMAIN_AFFECT_CONFIG
    seen = {"vcpus": domain.vcpusFlags(flag), "memory_bytes": domain.info()[2] * 1024}
    with contextlib.suppress(libvirt.libvirtError):  # without cgroups there are no shares
        if shares := int(domain.schedulerParametersFlags(flag).get("cpu_shares", 0)):
            seen["cpu_shares"] = shares
    return seen
