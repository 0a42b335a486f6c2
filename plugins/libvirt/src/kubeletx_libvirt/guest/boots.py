"""Reboots that nobody heard of, such as those made while the agent was away.

Neither QEMU nor libvirt remembers a reboot. Linux gives each boot an id, and the guest agent can read it: when it came
up, and when ours did. Another id than the one that was written down, without a reboot or a start that was heard, is a
reboot; several of them count once. A reboot that is heard clears what was written down. Guests that are no
Linux or have no agent are not asked twice.
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
"""libvirt's embedded driver takes a moment to find the agents of machines that it finds; it tells nobody when."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"


class Boots:
    """Of all machines of one runtime."""

    def __init__(
        self, agent: GuestAgent, records: Records, rebooted: Callable[[UnitId], Awaitable[None]]
    ) -> None:
        """`rebooted`: called for a reboot that was not heard of; has to write down one more restart."""
        self._agent = agent
        self._records = records
        self._rebooted = rebooted
        self._looking: dict[UnitId, asyncio.Task[None]] = {}

    def look(self, unit_id: UnitId) -> None:
        """Ask the guest, beside."""
        if unit_id not in self._looking:
            task = asyncio.create_task(self._look(unit_id), name=f"guest-boot-{unit_id}")
            self._looking[unit_id] = task
            task.add_done_callback(lambda _task: self._looking.pop(unit_id))

    async def close(self) -> None:
        """Ask no more."""
        tasks = list(self._looking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _look(self, unit_id: UnitId) -> None:
        with contextlib.suppress(KubeletxError):  # no Linux, no agent, or it is not up yet: it will be heard
            while not await self._compare(unit_id):
                pass

    async def _compare(self, unit_id: UnitId) -> bool:
        """False: a reboot was heard meanwhile, so that it is not sure of which boot the id was."""
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
