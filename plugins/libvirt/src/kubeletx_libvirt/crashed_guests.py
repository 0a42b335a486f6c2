"""Emulators that stand still with a dead guest (`domain.states.fatal_hold`) are ended, so that the unit ends.

Looks and events tell; each such machine gets one task, since ending it takes its lock and a moment. What could
not be done is seen again by the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from kubeletx.api import KubeletxError, UnitId
from kubeletx_libvirt.domain.states import fatal_hold
from kubeletx_libvirt.looks import Found
from kubeletx_libvirt.units import Units

log = structlog.get_logger(__name__)


class CrashedGuests:
    """Crashed guests of one runtime whose emulator still exists."""

    def __init__(self, units: Units) -> None:
        self._units = units
        self._ending: dict[UnitId, asyncio.Task[None]] = {}

    def see(self, found: Mapping[UnitId, Found]) -> None:
        """A look's result: whatever of it is dead is ended."""
        for unit_id, one in found.items():
            if fatal_hold(one.state, one.reason) and unit_id not in self._ending:
                task = asyncio.create_task(self._end(unit_id), name=f"libvirt-dead-guest-{unit_id}")
                self._ending[unit_id] = task

    async def close(self) -> None:
        """Stop. Nothing is lost: the next look finds them again."""
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
