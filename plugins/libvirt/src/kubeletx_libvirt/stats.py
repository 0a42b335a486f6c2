"""Usage of all machines from one call to libvirt.

What counts is what a machine costs the node: processor time of the emulator, resident memory of the emulator,
and the blocks that its root disk takes. What the guest itself says about its memory (through the balloon) is only
the memory still available to it. A figure that libvirt does not give stays None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import libvirt

from kubeletx.api import Host, UnitId, UnitStats

from .client import Connection
from .disks import pod_directory
from .domain.metadata import Identity
from .looks import Looks, now_ns

_FIGURES = (
    libvirt.VIR_DOMAIN_STATS_CPU_TOTAL | libvirt.VIR_DOMAIN_STATS_BALLOON | libvirt.VIR_DOMAIN_STATS_BLOCK
)
_HOW = libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_ACTIVE | libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT
"""NOWAIT: a machine that is busy with a long job gives fewer figures instead of holding up all others."""


class Stats:
    """`SupportsStats` of one runtime."""

    def __init__(self, connection: Connection, looks: Looks, host: Host) -> None:
        self._connection = connection
        self._looks = looks
        self._host = host

    async def list_unit_stats(self, match: Mapping[str, str]) -> Sequence[UnitStats]:
        """One entry per machine that is on and whose labels contain every pair."""
        figures = await self._connection.use(_read)
        if any(not self._looks.has_seen(uuid) for uuid in figures):
            await self._looks.all()
        at_ns = now_ns(self._host)
        stats: list[UnitStats] = []
        for uuid, one in figures.items():
            identity = self._looks.identity(uuid)
            if identity is not None and match.items() <= identity.labels.items():
                disks = pod_directory(self._host.state_directory, identity.uid)
                stats.append(stats_of(UnitId(uuid), identity, one, disks=disks, at_ns=at_ns))
        return stats


def stats_of(
    unit_id: UnitId, identity: Identity, figures: Mapping[str, Any], *, disks: Path, at_ns: int
) -> UnitStats:
    """libvirt's figures as ours. Pure. `disks`: directory whose files are the pod's own; volumes lie elsewhere."""
    resident = _bytes(figures, "balloon.rss")
    return UnitStats(
        id=unit_id,
        uid=identity.uid,
        name=identity.unit,
        at_ns=at_ns,
        cpu_usage_core_ns=figures.get("cpu.time"),
        memory_working_set_bytes=resident,
        memory_usage_bytes=resident,
        memory_rss_bytes=resident,
        memory_available_bytes=_bytes(figures, "balloon.usable"),
        fs_used_bytes=_allocated(figures, disks),
    )


def _bytes(figures: Mapping[str, Any], name: str) -> int | None:
    kib = figures.get(name)
    return None if kib is None else int(kib) * 1024


def _allocated(figures: Mapping[str, Any], disks: Path) -> int | None:
    sizes = [
        int(figures[f"block.{index}.allocation"])
        for index in range(int(figures.get("block.count", 0)))
        if Path(str(figures.get(f"block.{index}.path", ""))).parent == disks
        and f"block.{index}.allocation" in figures
    ]
    return sum(sizes) if sizes else None


def _read(handle: libvirt.virConnect) -> dict[str, dict[str, Any]]:
    return {domain.UUIDString(): figures for domain, figures in handle.getAllDomainStats(_FIGURES, _HOW)}
