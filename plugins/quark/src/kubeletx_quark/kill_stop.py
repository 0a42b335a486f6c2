"""`KillStop`: stops containers by Kill of containerd's task service instead of CRI's StopContainer.

Runtimes such as Quark give signals to a task their own meaning, and are stopped without CRI's own sequence.
"""

from __future__ import annotations

import signal
from collections.abc import Awaitable, Callable

from kubeletx.api import Clock, NotFound, TimedOut, UnitId, UnitState, UnitStatus
from kubeletx.cri import ContainerdTasks

KILL_SECONDS = 10.0
"""Time in which a container must end after SIGKILL."""
_LOOK_SECONDS = 0.02

Status = Callable[[UnitId], Awaitable[UnitStatus]]


class KillStop:
    """Stops containers by the task service: SIGTERM to the first process, then SIGKILL to all."""

    def __init__(self, tasks: ContainerdTasks, clock: Clock) -> None:
        self._tasks = tasks
        self._clock = clock

    async def stop(self, unit_id: UnitId, grace_seconds: float, status: Status) -> None:
        """Send SIGTERM, wait `grace_seconds` (0: not at all), then kill; succeeds if the container is gone.

        `status`: returns the CRI status of the container. Raises TimedOut if it still runs after the kill.
        """
        if grace_seconds > 0:
            await self._tasks.kill(unit_id, signal.SIGTERM)
            if await self._ends(unit_id, grace_seconds, status):
                return
        await self._tasks.kill(unit_id, signal.SIGKILL, all_processes=True)
        if not await self._ends(unit_id, KILL_SECONDS, status):
            raise TimedOut(f"container {unit_id} still runs {KILL_SECONDS:g} s after SIGKILL")

    async def _ends(self, unit_id: UnitId, seconds: float, status: Status) -> bool:
        deadline = self._clock.monotonic() + seconds
        while True:
            try:
                state = (await status(unit_id)).summary.state
            except NotFound:
                return True
            if state in (UnitState.EXITED, UnitState.CREATED):
                return True
            if self._clock.monotonic() >= deadline:
                return False
            await self._clock.sleep(_LOOK_SECONDS)
