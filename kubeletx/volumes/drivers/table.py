"""`VolumeDrivers`: table of the volume drivers of the agent and its plugins, by what they serve."""

from __future__ import annotations

from typing import Final

import msgspec

from kubeletx.api import AlreadyExists, Unavailable, VolumeDriver
from kubeletx.api.names import Event
from kubeletx.kube.types.core import VolumeSource
from kubeletx.kube.types.meta import json_name

from ..kinds.table import KINDS
from . import nfs

_OWN_KINDS: Final = frozenset((*KINDS, nfs.NAME))
DRIVER_SOURCES: Final = tuple(
    sorted(json_name(name) for name in VolumeSource.__struct_fields__ if name not in _OWN_KINDS)
)
"""JSON names of the fields of a volume that the agent does not prepare itself: volume drivers of plugins can serve them."""
NAMED_DRIVERS: Final = ("csi", "flexVolume")
"""Fields of these sources whose object names the driver."""


class DriverEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One volume driver. `name`: unique; the journals of pods contain it.

    `sources`: what the driver serves, as in `RegisterVolumeDriver`.
    """

    name: str
    driver: VolumeDriver
    sources: tuple[str, ...]


class VolumeDrivers:
    """Table of all volume drivers. Plugins' drivers are added when the agent starts."""

    def __init__(self) -> None:
        self._entries: dict[str, DriverEntry] = {}
        self._by_source: dict[str, DriverEntry] = {}

    def add(self, entry: DriverEntry) -> None:
        """Add a driver. Raises AlreadyExists if its name or one of its sources is taken."""
        if entry.name in self._entries:
            raise AlreadyExists(
                f"volume driver {entry.name}: another driver has this name; disable one of the plugins"
            )
        for source in entry.sources:
            if (other := self._by_source.get(source)) is not None:
                raise AlreadyExists(
                    f"volume driver {entry.name}: {source} is served by {other.name}; remove one of them"
                )
        self._entries[entry.name] = entry
        self._by_source.update(dict.fromkeys(entry.sources, entry))

    def find(self, source: str, driver: str = "") -> DriverEntry | None:
        """Return the driver for a volume with this source; None if there is none.

        `driver`: name of the driver in the source; empty if the source has none.
        """
        return (self._by_source.get(f"{source}:{driver}") if driver else None) or self._by_source.get(source)

    def may_serve(self, source: str) -> bool:
        """Return True if a driver serves volumes with this source, or some of them."""
        return any(served.partition(":")[0] == source for served in self._by_source)

    def for_release(self, name: str, source: str, driver: str) -> DriverEntry:
        """Return the driver that must release a volume. Raises Unavailable if it is not there.

        `name`: the driver that prepared the volume; empty if the pod's journal was lost. Then the driver that serves
        the source is returned, also one for a part of it if it is the only one.
        """
        entry = self._entries.get(name) if name else self.find(source, driver) or self._only_one(source)
        if entry is None:
            served = f"{source}:{driver}" if driver else source
            which = (
                f"volume driver {name}, which prepared the volume ({served}),"
                if name
                else f"a volume driver for {served}"
            )
            raise Unavailable(
                f"{which} is missing; install its plugin again: the volume is released when it is back",
                reason=Event.FAILED_KILL_POD,
            )
        return entry

    def _only_one(self, source: str) -> DriverEntry | None:
        entries = {
            entry.name: entry
            for served, entry in self._by_source.items()
            if served.partition(":")[0] == source
        }
        return next(iter(entries.values())) if len(entries) == 1 else None

    @property
    def served(self) -> tuple[str, ...]:
        """Sources that have a driver, sorted."""
        return tuple(sorted(self._by_source))
