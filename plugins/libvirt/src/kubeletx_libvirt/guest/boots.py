"""Detects reboots without an event, such as those while the agent was away.

Neither QEMU nor libvirt stores a reboot. Linux gives each boot an id, which the guest agent can read: it is read when
the guest agent comes up, and when our agent starts. An id that differs from the stored one, without an event of a
reboot or start, is a reboot; several of them count once. An event of a reboot clears the stored id. Guests that are not
Linux or have no agent are queried only once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import msgspec

from kubeletx.api import KubeletxError, UnitId
from kubeletx_libvirt.records import Records

from .agent import GuestAgent
from .files import Guest

PATIENCE_SECONDS = 20.0
"""Time for libvirt's embedded driver to find the guest agents of machines it reconnects to; it sends no event then."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Boots:
    """Reads boot ids of one runtime's guests and reports reboots that had no event."""

    def __init__(
        self, agent: GuestAgent, records: Records, rebooted: Callable[[UnitId], Awaitable[None]]
    ) -> None:
        """`rebooted`: called for a reboot without an event; it must store one more restart."""
        self._agent = agent
        self._records = records
        self._rebooted = rebooted
        self._looking: dict[UnitId, asyncio.Task[None]] = {}

    def look(self, unit_id: UnitId) -> None:
        """Start to read the guest's boot id in the background, unless that is running already."""
        if unit_id not in self._looking:
            task = asyncio.create_task(self._look(unit_id), name=f"guest-boot-{unit_id}")
            self._looking[unit_id] = task
            task.add_done_callback(lambda _task: self._looking.pop(unit_id))

    async def close(self) -> None:
        """Cancel all reads of boot ids."""
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, unit_id: UnitId) -> None:
        with contextlib.suppress(KubeletxError):  # no Linux, no agent, or it is not up yet: an event follows
            while not await self._compare(unit_id):
                pass

    async def _compare(self, unit_id: UnitId) -> bool:
        """Compare the guest's boot id with the stored one, and report a reboot that had no event.

        False if a start or a reboot with an event came meanwhile: then the id may be of either boot, and a retry is
        needed.
        """
        before = self._records.run_of(unit_id)
        await self._agent.wait(unit_id, PATIENCE_SECONDS)
        async with Guest(self._agent, unit_id).opened(BOOT_ID, "rb") as file:
            boot_id = (await file.read()).decode(errors="replace").strip()
        run = self._records.run_of(unit_id)
        if (run.restarts, run.started_at_ns) != (before.restarts, before.started_at_ns):
            return False
        if boot_id and run.boot_id and run.boot_id != boot_id:
            await self._rebooted(unit_id)
            run = self._records.run_of(unit_id)
        if boot_id and run.boot_id != boot_id:
            await self._records.save_run(unit_id, msgspec.structs.replace(run, boot_id=boot_id))
        return True
