"""`PauseStrategy`: freezes containers by Pause and Resume of containerd's task service.

containerd's shim starts the OCI runtime for each call, which takes several milliseconds. ``ctr task ls`` shows these
containers as PAUSED. It works with every OCI runtime that can pause, also with those that run containers in machines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from kubeletx.api import NotFound, TimedOut, Unavailable, UnitId
from kubeletx.cri import ContainerdTasks, TaskState

_PAUSED = (TaskState.PAUSED, TaskState.PAUSING)


class PauseStrategy:
    """Strategy ``pause``. Implements `Strategy`."""

    def __init__(self, tasks: ContainerdTasks) -> None:
        """`tasks`: of the containerd that runs the containers."""
        self._tasks = tasks
        self._paused: set[UnitId] = set()

    async def find_frozen(self, running: Callable[[], Awaitable[Iterable[UnitId]]]) -> Iterable[UnitId]:
        """Read the task of every container that CRI shows as running."""
        self._paused = set()
        for unit_id in await running():
            if await self._is_paused(unit_id):
                self._paused.add(unit_id)
        return tuple(self._paused)

    async def freeze(self, unit_id: UnitId) -> None:
        """Call Pause."""
        await self._tasks.pause(unit_id)
        self._paused.add(unit_id)

    async def thaw(self, unit_id: UnitId) -> None:
        """Call Resume if the task is paused."""
        if (await self._tasks.get(unit_id)).state in _PAUSED:
            await self._tasks.resume(unit_id)
        self._paused.discard(unit_id)

    async def is_frozen(self, unit_id: UnitId) -> bool:
        """Read the state of a known container's task; without an answer, the last known state holds."""
        if unit_id not in self._paused:
            return False
        try:
            return await self._is_paused(unit_id)
        except (TimedOut, Unavailable):
            return True

    def forget(self, unit_id: UnitId) -> None:
        """Drop a container that is gone."""
        self._paused.discard(unit_id)

    async def _is_paused(self, unit_id: UnitId) -> bool:
        try:
            return (await self._tasks.get(unit_id)).state in _PAUSED
        except NotFound:
            return False
