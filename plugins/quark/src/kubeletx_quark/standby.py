"""`Standby`: freezes, hibernates and thaws the containers of one runtime, and keeps the ids of those that rest.

A hibernated container is frozen, and its memory was reclaimed. CRI shows frozen containers as running: `state_of`
returns the real state. It reads the state only of containers that this object froze or found frozen when the runtime
was opened.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import structlog

from kubeletx.api import Host, KubeletxError, NotFound, UnitId, UnitState, UnitSummary
from kubeletx.cri import ContainerdTasks, TaskState

from .cgroups import container_cgroup, find_hierarchy
from .reclaim import Reclaimed, reclaim
from .records import Records
from .strategy import Strategy

log = structlog.get_logger(__name__)

_NOT_RUNNING = (TaskState.CREATED, TaskState.STOPPED)


class Standby:
    """Standby of one runtime's containers. Implements `SupportsStandby`."""

    def __init__(self, strategy: Strategy, tasks: ContainerdTasks, host: Host) -> None:
        """`tasks`: of the containerd that runs the containers. `host`: of the runtime."""
        self._strategy = strategy
        self._tasks = tasks
        self._host = host
        self._records = Records(host.state_directory / "hibernated")
        self._resting: set[UnitId] = set()

    @property
    def has_resting(self) -> bool:
        """True if this object froze containers, or found some, that rest as far as it is known."""
        return bool(self._resting)

    async def open(self, running: Callable[[], Awaitable[Iterable[UnitId]]]) -> None:
        """Find the containers that rest, also those that earlier agent processes froze.

        `running`: returns the containers that CRI shows as running.
        """
        self._records.load()
        self._resting = set(await self._strategy.find_frozen(running))
        for unit_id in self._records:
            if unit_id not in self._resting:
                self._records.remove(unit_id)

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze the container; succeeds if it is frozen or hibernated. After an error, it runs."""
        if await self._rests(unit_id):
            return
        await self._strategy.freeze(unit_id)
        self._resting.add(unit_id)

    async def thaw(self, unit_id: UnitId) -> None:
        """Let a frozen or hibernated container continue; succeeds if it runs."""
        await self._strategy.thaw(unit_id)
        self._drop(unit_id)

    async def hibernate(self, unit_id: UnitId) -> None:
        """Freeze the container, and reclaim its memory; succeeds if it is hibernated.

        If its memory cannot be reclaimed, the container is in the same state as before.
        """
        if unit_id in self._records and await self._rests(unit_id):
            return
        was_frozen = await self._rests(unit_id)
        await self.freeze(unit_id)
        try:
            given = await self._reclaim(unit_id)
            self._records.add(unit_id)
        except BaseException:
            if not was_frozen:
                await self.thaw(unit_id)
            raise
        log.info(
            "Hibernated container",
            container_id=unit_id,
            freed_bytes=given.freed_bytes,
            swapped_bytes=given.swapped_bytes,
            left_bytes=given.after_bytes,
        )

    async def state_of(self, summary: UnitSummary) -> UnitState:
        """Return the state of a container, PAUSED or SUSPENDED if it rests. `summary`: from CRI."""
        unit_id = summary.id
        if unit_id not in self._resting:
            return summary.state
        if summary.state is UnitState.EXITED or not await self._rests(unit_id):
            self._drop(unit_id)
            return summary.state
        return UnitState.SUSPENDED if unit_id in self._records else UnitState.PAUSED

    async def wake(self, unit_id: UnitId) -> None:
        """Thaw a container before it is stopped, also one that another program froze. Failures are logged, not raised."""
        try:
            if (await self._tasks.get(unit_id)).state in _NOT_RUNNING:
                self._drop(unit_id)
            else:
                await self.thaw(unit_id)
        except NotFound:
            self._drop(unit_id)
        except KubeletxError as error:
            log.warning("Failed to thaw before a stop", container_id=unit_id, err=str(error))

    async def wake_all(self, belongs: Callable[[UnitId], bool]) -> None:
        """Thaw all resting containers for which `belongs` returns True; as `wake` does."""
        for unit_id in [one for one in self._resting if belongs(one)]:
            await self.wake(unit_id)

    def forget(self, unit_ids: Iterable[UnitId]) -> None:
        """Drop what is known about containers that were removed."""
        for unit_id in unit_ids:
            self._drop(unit_id)

    async def _rests(self, unit_id: UnitId) -> bool:
        return unit_id in self._resting and await self._strategy.is_frozen(unit_id)

    def _drop(self, unit_id: UnitId) -> None:
        self._resting.discard(unit_id)
        self._records.remove(unit_id)
        self._strategy.forget(unit_id)

    async def _reclaim(self, unit_id: UnitId) -> Reclaimed:
        hierarchy = find_hierarchy("memory")
        task = await self._tasks.get(unit_id)
        directory = container_cgroup(hierarchy, task.pid, unit_id)
        return await self._host.blocking(reclaim, directory, hierarchy.version)
