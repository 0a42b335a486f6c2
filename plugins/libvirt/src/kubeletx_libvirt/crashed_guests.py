"""Ends the emulators of crashed guests (see `domain.states.fatal_hold`), so that their units end.

Such an emulator still exists, but its guest does not run. Lists and events of domains show them. Each gets
one task, since the task waits for the unit's lock and for libvirt. If the task fails, the next list shows the
machine again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from kubeletx.api import KubeletxError, UnitId
from kubeletx_libvirt.domain.states import fatal_hold
from kubeletx_libvirt.domain_reader import Found
from kubeletx_libvirt.units import Units

log = structlog.get_logger(__name__)


class CrashedGuests:
    """Ends the emulators of crashed guests of one runtime, one task for each machine."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self._ending: dict[UnitId, asyncio.Task[None]] = {}

    def see(self, found: Mapping[UnitId, Found]) -> None:
        """Start a task for each crashed guest among `found`, unless it has one already."""
        for unit_id, one in found.items():
            if fatal_hold(one.state, one.reason) and unit_id not in self._ending:
                task = asyncio.create_task(self._end(unit_id), name=f"libvirt-dead-guest-{unit_id}")
                self._ending[unit_id] = task

    async def close(self) -> None:
        """Cancel the tasks; the next agent process finds these crashed guests again."""
        ending = list(self._ending.values())
        for task in ending:
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)

    async def _end(self, unit_id: UnitId) -> None:
        try:
            await self._units.end_fatal_hold(unit_id)
        except KubeletxError as error:
            log.warning("Could not end the emulator of a dead guest", unit=unit_id, err=str(error))
        finally:
            self._ending.pop(unit_id, None)
