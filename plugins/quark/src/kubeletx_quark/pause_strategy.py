"""`PauseStrategy`: freezes containers by Pause and Resume of containerd's task service.

containerd's shim starts the OCI runtime for each call, which takes several milliseconds. ``ctr task ls`` shows these
containers as PAUSED. It works with every OCI runtime that can pause, also with runtimes that run containers in
machines.
"""

from __future__ import annotations

import asyncio

from kubeletx.api import KubeletxError, NotFound, UnitId
from kubeletx.cri import ContainerdTasks, TaskState

PAUSED = (TaskState.PAUSED, TaskState.PAUSING)
"""States of a task that containerd has paused."""


class PauseStrategy:
    """Strategy ``pause``. Implements `Strategy`."""

    def __init__(self, tasks: ContainerdTasks) -> None:
        self._tasks = tasks

    async def freeze(self, unit_id: UnitId) -> None:
        """Call Pause; after a cancellation, the container runs."""
        try:
            await self._tasks.pause(unit_id)
        except asyncio.CancelledError:
            await self.thaw(unit_id)  # containerd may have paused it
            raise

    async def thaw(self, unit_id: UnitId) -> None:
        if (await self._tasks.get(unit_id)).state in PAUSED:
            await self._tasks.resume(unit_id)

    async def is_frozen(self, unit_id: UnitId) -> bool:
        """Return True if a paused container is still paused; also True without an answer."""
        try:
            return (await self._tasks.get(unit_id)).state in PAUSED
        except NotFound:
            return False
        except KubeletxError:
            return True
