"""`Standby`: freezes, hibernates and thaws the containers of one runtime, each by its strategy.

A hibernated container is frozen, and its memory was reclaimed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import structlog

from kubeletx.api import Conflict, Host, KubeletxError, NotFound, TimedOut, UnitId, UnitSummary, Unsupported
from kubeletx.cri import ContainerdTasks, TaskState

from .cgroups import PROC, container_cgroup, find_hierarchy
from .config import StrategyName
from .killed import wait_ended
from .reclaim import Reclaimed, reclaim, restore_swap_limit
from .resting import Resting

log = structlog.get_logger(__name__)

RECLAIMS = 2
"""Number of concurrent reclaims; others wait. Each occupies one of the runtime's 4 threads, and lists need one."""
_LIMITS = "swap-limits"
"""Directory of the swap limits that are lifted during a reclaim."""
_NOT_RUNNING = (TaskState.CREATED, TaskState.STOPPED)

Choose = Callable[[UnitId], Awaitable[StrategyName]]


class Strategy(Protocol):
    """Mechanism that freezes and thaws containers of one runtime: `Freezers`, `PauseStrategy`, `SignalStrategy`.

    `freeze` and `thaw` raise NotFound if the container has no task, and Conflict if it is not running.
    """

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze the container; succeeds if it is frozen. After an error, it runs."""
        ...

    async def thaw(self, unit_id: UnitId) -> None:
        """Let the container continue; succeeds, without any effect, if it runs."""
        ...


class Standby:
    """Standby of one runtime's containers. Implements `SupportsStandby`."""

    def __init__(
        self,
        strategies: Mapping[StrategyName, Strategy],
        choose: Choose,
        *,
        resting: Resting,
        tasks: ContainerdTasks,
        host: Host,
        proc: Path = PROC,
    ) -> None:
        """`choose`: returns the strategy of a container. `tasks`: of the containerd that runs the containers."""
        self._strategies = strategies
        self._choose = choose
        self._resting = resting
        self._tasks = tasks
        self._host = host
        self._proc = proc
        self._reclaims = asyncio.Semaphore(RECLAIMS)
        self._reclaiming: dict[UnitId, asyncio.Task[Reclaimed]] = {}
        """Reclaims whose thread has not ended, also of calls that were cancelled."""

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze the container; succeeds if it is frozen or hibernated. After an error, it runs."""
        with self._resting.call(unit_id):
            if await self._resting.rests(unit_id):
                return
            name = await self._choose(unit_id)
            await self._strategies[name].freeze(unit_id)
            self._resting.add(unit_id, name)

    async def thaw(self, unit_id: UnitId) -> None:
        """Thaw a frozen or hibernated container, also if another program froze it; succeeds if it runs."""
        with self._resting.call(unit_id):
            name = self._resting.strategy_of(unit_id) or await self._resting.find_strategy(unit_id)
            if name is not None:
                await self._strategies[name].thaw(unit_id)
            self._resting.drop(unit_id)

    async def hibernate(self, unit_id: UnitId) -> None:
        """Freeze the container, and reclaim its memory; succeeds if it is hibernated.

        If its memory cannot be reclaimed, or if this call is cancelled, the container is in the same state as before.
        """
        with self._resting.call(unit_id):
            was_frozen = await self._resting.rests(unit_id)
            if was_frozen and self._resting.is_hibernated(unit_id):
                return
            await self.freeze(unit_id)
            try:
                given = await self._reclaim(unit_id)
                self._resting.add_hibernated(unit_id)
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

    async def look(self, listed: Sequence[UnitSummary], *, is_whole: bool) -> Sequence[UnitId]:
        """Find the frozen containers of a list, and thaw containers whose processes were killed.

        Returns the thawed containers whose first process has ended, which CRI shows soon; other thawed containers
        run. `is_whole`: the list has all containers of the runtime.
        """
        killed = await self._resting.look(listed, is_whole=is_whole)
        ended = await asyncio.gather(*(self._let_end(unit_id, pids) for unit_id, pids in killed.items()))
        return [unit_id for unit_id, has_ended in zip(killed, ended, strict=True) if has_ended]

    async def restore_limits(self) -> None:
        """Restore the limits of swap that were lifted when the agent was killed during a reclaim."""
        for note in (self._host.state_directory / _LIMITS).glob("*"):
            try:
                task = await self._tasks.get(note.name)
                hierarchy = find_hierarchy("memory", self._proc)
                directory = container_cgroup(hierarchy, task.pid, note.name, self._proc)
            except (NotFound, Conflict, Unsupported):
                note.unlink(missing_ok=True)  # the container is gone
            except KubeletxError as error:  # the next `open` or reclaim restores it
                log.warning("Failed to restore a limit of swap", container_id=note.name, err=str(error))
            else:
                await self._host.blocking(restore_swap_limit, directory, note)

    async def wake(self, unit_id: UnitId) -> None:
        """Thaw a container before it is stopped, also one that another program froze. Failures are logged, not raised."""
        try:
            with suppress(TimedOut):  # a freezer thaws without containerd
                if (await self._tasks.get(unit_id)).state in _NOT_RUNNING:
                    self._resting.drop(unit_id)
                    return
            await self.thaw(unit_id)
        except NotFound:
            self._resting.drop(unit_id)
        except KubeletxError as error:
            log.warning("Failed to thaw before a stop", container_id=unit_id, err=str(error))

    async def wake_all(self, belongs: Callable[[UnitId], bool]) -> None:
        """Thaw all frozen containers for which `belongs` returns True; as `wake` does."""
        for unit_id in [resting_id for resting_id in self._resting if belongs(resting_id)]:
            await self.wake(unit_id)

    async def _let_end(self, unit_id: UnitId, killed: Sequence[int]) -> bool:
        """Thaw a container so that its killed processes end. Returns True if its first process has ended."""
        try:
            await self.thaw(unit_id)
            log.warning(
                "Thawed a container whose processes were killed", container_id=unit_id, processes=list(killed)
            )
            await wait_ended(killed, self._host.clock)
            task = await self._tasks.get(unit_id)
        except NotFound:
            return True
        except KubeletxError as error:
            log.warning("Failed to thaw killed processes", container_id=unit_id, err=str(error))
            return False
        return task.state is TaskState.STOPPED or task.pid in killed

    async def _reclaim(self, unit_id: UnitId) -> Reclaimed:
        hierarchy = find_hierarchy("memory", self._proc)
        task = await self._tasks.get(unit_id)
        directory = container_cgroup(hierarchy, task.pid, unit_id, self._proc)
        note = self._host.state_directory / _LIMITS / unit_id
        while (earlier := self._reclaiming.get(unit_id)) is not None:
            await asyncio.wait((earlier,))  # its thread restores the limit of swap when it ends
        await self._reclaims.acquire()
        stop = threading.Event()
        running = asyncio.create_task(
            self._host.blocking(reclaim, directory, hierarchy.version, note, stop), name=f"reclaim {unit_id}"
        )
        self._reclaiming[unit_id] = running
        running.add_done_callback(lambda done: self._reclaimed(unit_id, done))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            stop.set()  # the thread ends after its present write, which is not waited for
            raise

    def _reclaimed(self, unit_id: UnitId, task: asyncio.Task[Reclaimed]) -> None:
        """Let the next reclaim begin. Called at the end of the thread, also if the caller was cancelled before."""
        if self._reclaiming.get(unit_id) is task:
            del self._reclaiming[unit_id]
        self._reclaims.release()
        if not task.cancelled():
            task.exception()  # marks it as retrieved: after a cancellation no caller reads it
