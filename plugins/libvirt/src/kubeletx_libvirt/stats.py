"""Usage of all machines, without a call to any emulator.

Usage is the machine's cost to the node: CPU time and resident memory of the emulator (`emulators`), and the blocks of
its root disk. The guest's own report (through the balloon) is only the memory still available to it; the guest updates
it every few seconds, and libvirt queries each emulator for it, so it is fetched in the background, for the next list.
libvirt measures machines whose emulator is not found here. Missing figures are None.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import libvirt
import msgspec

from kubeletx.api import Host, InterfaceStats, KubeletxError, UnitId, UnitStats
from kubeletx_libvirt.client import Connection
from kubeletx_libvirt.disks import pod_directory
from kubeletx_libvirt.domain.metadata import Identity
from kubeletx_libvirt.emulators import Emulators
from kubeletx_libvirt.looks import Looks, now_ns
from kubeletx_libvirt.network.names import guest_device

GUEST_SECONDS = 10.0
"""Interval of the guests' memory reports (set in `domain.xml`)."""
_POD_INTERFACE = "eth0"
_COUNTERS = tuple(
    f"{way}_{what}" for way in ("rx", "tx") for what in ("bytes", "packets", "errors", "dropped")
)
_ACTIVE = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
"""Flags of the query. NOWAIT: a machine busy with a long job gives fewer figures instead of blocking the others."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of one machine; None for a figure that is not known.

    `cpu_ns`: CPU time since the emulator's start. `available_bytes`: memory that the guest can still use, by its
    own report.
    """

    cpu_ns: int | None = None
    resident_bytes: int | None = None
    disk_bytes: int | None = None
    available_bytes: int | None = None
    interfaces: tuple[InterfaceStats, ...] = ()


class Stats:
    """Measures CPU, memory, disk and network usage of one runtime's machines (`SupportsStats`)."""

    def __init__(
        self, connection: Connection, looks: Looks, host: Host, emulators: Emulators | None = None
    ) -> None:
        self._connection = connection
        self._looks = looks
        self._host = host
        self._emulators = emulators or Emulators()
        self._available: dict[str, int] = {}
        self._asked_at = -math.inf
        self._asking: asyncio.Task[None] | None = None

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """Usage of each machine that is on and whose labels contain every pair of `match`."""
        active = await self._connection.use(_list_active)
        if any(not self._looks.has_seen(uuid) for uuid in active):
            await self._looks.all()
        wanted = {
            uuid: identity
            for uuid in active
            if (identity := self._looks.identity(uuid)) is not None
            and match.items() <= identity.labels.items()
        }
        disks = {uuid: pod_directory(self._host.state_directory, one.uid) for uuid, one in wanted.items()}
        devices = {uuid: guest_device(one.uid) for uuid, one in wanted.items()}
        figures = await self._connection.use(self._measure, disks, devices)
        at_ns = now_ns(self._host)
        self._ask_guests([uuid for uuid, state in active.items() if uuid in wanted and state == _RUNNING])
        return [
            stats_of(UnitId(uuid), identity, figures[uuid], at_ns=at_ns) for uuid, identity in wanted.items()
        ]

    async def close(self) -> None:
        """Cancel the background query of the guests' memory reports."""
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

    def _measure(
        self, handle: libvirt.virConnect, disks: Mapping[str, Path], devices: Mapping[str, str]
    ) -> dict[str, Figures]:
        costs = self._emulators.costs(disks)
        others = _read_costs(handle, disks.keys() - costs.keys())
        return {
            uuid: Figures(
                cpu_ns=costs[uuid].cpu_ns if uuid in costs else others.get(uuid, {}).get("cpu.time"),
                resident_bytes=costs[uuid].resident_bytes
                if uuid in costs
                else _bytes(others.get(uuid, {}), "balloon.rss"),
                disk_bytes=allocated(directory),
                available_bytes=self._available.get(uuid),
                interfaces=interfaces_of(devices[uuid]),
            )
            for uuid, directory in disks.items()
        }


def stats_of(unit_id: UnitId, identity: Identity, figures: Figures, *, at_ns: int) -> UnitStats:
    """Convert one machine's figures, measured at `at_ns`, to the contract's `UnitStats`. Pure."""
    return UnitStats(
        id=unit_id,
        uid=identity.uid,
        name=identity.unit,
        at_ns=at_ns,
        cpu_usage_core_ns=figures.cpu_ns,
        memory_working_set_bytes=figures.resident_bytes,
        memory_usage_bytes=figures.resident_bytes,
        memory_rss_bytes=figures.resident_bytes,
        memory_available_bytes=figures.available_bytes,
        fs_used_bytes=figures.disk_bytes,
        interfaces=figures.interfaces,
    )


def allocated(directory: Path) -> int | None:
    """Bytes that the files in `directory`, the pod's own disks, take on the node; None if there are none.

    Blocks.
    """
    sizes = []
    with contextlib.suppress(FileNotFoundError):
        for path in directory.iterdir():
            with contextlib.suppress(FileNotFoundError):
                sizes.append(path.stat().st_blocks * 512)
    return sum(sizes) if sizes else None


def interfaces_of(device: str, *, directory: Path = Path("/sys/class/net")) -> tuple[InterfaceStats, ...]:
    """Traffic counters of the pod network's interface, as the guest counts it; empty if it has none. Blocks."""
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


def _read_costs(handle: libvirt.virConnect, uuids: Collection[str]) -> dict[str, dict[str, Any]]:
    return _read(handle, uuids, libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_BALLOON)


def _read_available(handle: libvirt.virConnect, uuids: Collection[str]) -> dict[str, int]:
    read = _read(handle, uuids, libvirt.VIR_DOMAIN_STATS_BALLOON)
    return {uuid: value for uuid, one in read.items() if (value := _bytes(one, "balloon.usable")) is not None}


def _read(handle: libvirt.virConnect, uuids: Collection[str], what: int) -> dict[str, dict[str, Any]]:
    domains = []
    for uuid in uuids:
        with contextlib.suppress(libvirt.libvirtError):  # it ended meanwhile
            domains.append(handle.lookupByUUIDString(uuid))
    if not domains:
        return {}
    return {domain.UUIDString(): one for domain, one in handle.domainListGetStats(domains, what, _ACTIVE)}


def _bytes(figures: Mapping[str, Any], name: str) -> int | None:
    kib = figures.get(name)
    return None if kib is None else int(kib) * 1024
