"""Detects reboots of guests for which there was no event, such as those while our node agent was not running.

Neither QEMU nor libvirt stores a reboot. Linux gives each boot an id (`BOOT_ID`), which the guest agent can
read. The id is read when the guest agent starts and when our node agent starts. If it differs from the stored
id, and no event of a start or reboot came meanwhile, the guest has rebooted; several such reboots count as
one. A reboot event clears the stored id. Guests that are not Linux or have no guest agent are queried only
once.
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
"""How long to wait for a guest agent.

libvirt's embedded driver needs time to find the guest agents of machines to which it reconnects, and sends no
event then.
"""
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Boots:
    """Reads boot ids of one runtime's guests and reports reboots that had no event."""

    def __init__(
        self,
        agent: GuestAgent,
        records: Records,
        rebooted: Callable[[UnitId], Awaitable[None]],
        *,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        """`rebooted`: called for each reboot without an event; it must increase the stored number of restarts."""
        self._agent = agent
        self._records = records
        self._rebooted = rebooted
        self._patience_seconds = patience_seconds
        self._looking: dict[UnitId, asyncio.Task[None]] = {}

    def look(self, unit_id: UnitId) -> asyncio.Task[None]:
        """Return the task that reads the guest's boot id; start it unless it is running already."""
        if (task := self._looking.get(unit_id)) is None:
            task = asyncio.create_task(self._look(unit_id), name=f"guest-boot-{unit_id}")
            self._looking[unit_id] = task
            task.add_done_callback(lambda _task: self._looking.pop(unit_id))
        return task

    async def close(self) -> None:
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, unit_id: UnitId) -> None:
        with contextlib.suppress(KubeletxError):  # no Linux, or no guest agent yet: an event follows
            while not await self._compare(unit_id):
                pass

    async def _compare(self, unit_id: UnitId) -> bool:
        """Compare the guest's boot id with the stored one, and report a reboot that had no event.

        Returns False if a start or a reboot with an event happened meanwhile. The id may then belong to
        either boot, so the caller must repeat the call.
        """
        before = self._records.run_of(unit_id)
        await self._agent.wait(unit_id, self._patience_seconds)
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
