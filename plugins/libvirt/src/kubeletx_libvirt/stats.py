"""Usage of all machines, without a call to any emulator.

Usage is what the machine costs the node: CPU time and resident memory of the emulator (see `emulators`), and
the blocks of its root disk. Only one value comes from the guest (through the balloon): the memory that is
still available to it. The guest updates this value every few seconds, and libvirt must query each emulator
for it. So it is read in the background, and the next list contains it. For a machine whose emulator is not
found on this node, libvirt measures CPU time and memory. Unknown values are None.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import libvirt

from kubeletx.api import InterfaceStats, KubeletxError, UnitId, UnitStats
from kubeletx_libvirt.disks import pod_directory
from kubeletx_libvirt.domain.metadata import Identity
from kubeletx_libvirt.domain_reader import now_ns
from kubeletx_libvirt.emulators import Emulators
from kubeletx_libvirt.machinery import Machinery, Part
from kubeletx_libvirt.network.names import guest_device

GUEST_SECONDS = 10.0
"""Interval of the guests' reports about available memory (set in `domain.xml`)."""
_POD_INTERFACE = "eth0"
_COUNTERS = tuple(
    f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "errors", "dropped")
)
_ACTIVE = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
"""Flags of the query. NOWAIT: for a machine that is busy with a long job, libvirt omits values instead of waiting."""


class Stats(Part):
    """Measures CPU, memory, disk and network usage of one runtime's machines (`SupportsStats`)."""

    def __init__(self, machinery: Machinery) -> None:
        super().__init__(machinery)
        self._emulators = Emulators()
        self._available: dict[str, int] = {}
        self._asked_at = -math.inf
        self._asking: asyncio.Task[None] | None = None

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        active = await self._connection.use(_list_active)
        if any(not self._domains.has_seen(uuid) for uuid in active):
            await self._domains.all()
        wanted = {
            uuid: identity
            for uuid in active
            if (identity := self._domains.identity(uuid)) is not None
            and match.items() <= identity.labels.items()
        }
        stats = await self._connection.use(self._measure, wanted)
        self._ask_guests([uuid for uuid, state in active.items() if uuid in wanted and state == _RUNNING])
        return stats

    async def close(self) -> None:
        asking, self._asking = self._asking, None
        if asking is not None:
            asking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asking

    def _ask_guests(self, uuids: Collection[str]) -> None:
        now = self._host.clock.monotonic()
        is_asking = self._asking is not None and not self._asking.done()
        if uuids and not is_asking and now - self._asked_at >= GUEST_SECONDS:
            self._asked_at = now
            self._asking = asyncio.create_task(self._read_guests(uuids), name="libvirt-guest-memory")

    async def _read_guests(self, uuids: Collection[str]) -> None:
        with contextlib.suppress(KubeletxError):  # the next list asks again
            self._available = await self._connection.use(_read_available, uuids)

    # --- on the host's threads ---

    def _measure(self, handle: libvirt.virConnect, wanted: Mapping[str, Identity]) -> list[UnitStats]:
        usage = self._emulators.usage(wanted)
        others = _read_usage(handle, wanted.keys() - usage.keys())
        at_ns = now_ns(self._host)
        stats = []
        for uuid, identity in wanted.items():
            own, other = usage.get(uuid), others.get(uuid, {})
            stats.append(
                stats_of(
                    UnitId(uuid),
                    identity,
                    at_ns=at_ns,
                    cpu_ns=own.cpu_ns if own is not None else other.get("cpu.time"),
                    resident_bytes=own.resident_bytes if own is not None else _bytes(other, "balloon.rss"),
                    disk_bytes=allocated(pod_directory(self._host.state_directory, identity.uid)),
                    available_bytes=self._available.get(uuid),
                    interfaces=interfaces_of(guest_device(identity.uid)),
                )
            )
        return stats


def stats_of(
    unit_id: UnitId,
    identity: Identity,
    *,
    at_ns: int,
    cpu_ns: int | None = None,
    resident_bytes: int | None = None,
    disk_bytes: int | None = None,
    available_bytes: int | None = None,
    interfaces: tuple[InterfaceStats, ...] = (),
) -> UnitStats:
    """Build the usage of one machine; None for a value that is not known. Pure.

    `cpu_ns`: CPU time since the emulator's start. `resident_bytes`: memory of the emulator. `disk_bytes`: space of the
    pod's disks on the node. `available_bytes`: memory that the guest can still use, as the guest reports it.
    """
    return UnitStats(
        id=unit_id,
        uid=identity.uid,
        name=identity.unit,
        at_ns=at_ns,
        cpu_usage_core_ns=cpu_ns,
        memory_working_set_bytes=resident_bytes,
        memory_usage_bytes=resident_bytes,
        memory_rss_bytes=resident_bytes,
        memory_available_bytes=available_bytes,
        fs_used_bytes=disk_bytes,
        interfaces=interfaces,
    )


def allocated(directory: Path) -> int | None:
    """Return the bytes that the files in `directory` occupy on the node; None if there are none. Blocking.

    `directory`: directory of the pod's own disks.
    """
    sizes = []
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                sizes.append(path.stat().st_blocks * 512)
    return sum(sizes) if sizes else None


def interfaces_of(device: str, *, directory: Path = Path("/sys/class/net")) -> tuple[InterfaceStats, ...]:
    """Return the traffic counters of the guest's interface on the pod network; empty if it has none. Blocking.

    `device`: the guest's macvtap; received and sent are as the guest sees them. `directory`: sysfs directory
    of network devices.
    """
    counters = directory / device / "statistics"
    try:
        counts = {name: int((counters / name).read_text()) for name in _COUNTERS}
    except OSError:  # the pod has none, or it has just gone
        return ()
    return (InterfaceStats(name=_POD_INTERFACE, **counts),)


_RUNNING = libvirt.VIR_DOMAIN_RUNNING


def _list_active(handle: libvirt.virConnect) -> dict[str, int]:
    listed = handle.getAllDomainStats(libvirt.VIR_DOMAIN_STATS_STATE, _ACTIVE)
    return {domain.UUIDString(): figures.get("state.state", 0) for domain, figures in listed}


def _read_usage(handle: libvirt.virConnect, uuids: Collection[str]) -> dict[str, dict[str, Any]]:
    return _read(handle, uuids, libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_BALLOON)


def _read_available(handle: libvirt.virConnect, uuids: Collection[str]) -> dict[str, int]:
    read = _read(handle, uuids, libvirt.VIR_DOMAIN_STATS_BALLOON)
    return {
        uuid: value
        for uuid, figures in read.items()
        if (value := _bytes(figures, "balloon.usable")) is not None
    }


def _read(handle: libvirt.virConnect, uuids: Collection[str], what: int) -> dict[str, dict[str, Any]]:
    domains = []
    for uuid in uuids:
        with contextlib.suppress(libvirt.libvirtError):  # it ended meanwhile
            domains.append(handle.lookupByUUIDString(uuid))
    if not domains:
        return {}
    return {
        domain.UUIDString(): figures for domain, figures in handle.domainListGetStats(domains, what, _ACTIVE)
    }


def _bytes(figures: Mapping[str, Any], name: str) -> int | None:
    kib = figures.get(name)
    return None if kib is None else int(kib) * 1024
