"""`Resting`: which containers of one runtime are frozen, by which strategy, and which of these are hibernated.

CRI shows frozen containers as running. Their state is read from the kernel's freezer, so that changes by other
programs are seen. It is read from containerd if the processes are not in the container's cgroup. A strategy is stored
with each frozen container, since it must be thawed as it was frozen: containerd refuses an exec in a container that
it paused, even if the freezer was thawed.

Files are read in a thread, while calls may freeze or thaw containers. The result is only a hint: if it differs from
the known state, the freezer is read again. Containers with a call in flight are left out.

A containerd may also run containers of other agents. Their states are shown, too, but only the runtime's own containers
are frozen or thawed without a call.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import structlog

from kubeletx.api import Host, KubeletxError, NotFound, UnitId, UnitState, UnitSummary
from kubeletx.cri import ContainerdTasks, TaskState

from .config import StrategyName
from .freezers import FreezerReading, Freezers
from .pause_strategy import PAUSED, PauseStrategy
from .signal_strategy import Records, SignalStrategy

log = structlog.get_logger(__name__)

T = TypeVar("T")

ASKS = 16
"""Number of containers whose states are read at once. containerd waits up to 2 s for each shim."""


class Resting:
    """The frozen containers of one runtime."""

    def __init__(
        self,
        *,
        freezers: Freezers,
        pause: PauseStrategy,
        by_signal: SignalStrategy,
        tasks: ContainerdTasks,
        host: Host,
        labels: Mapping[str, str],
    ) -> None:
        """`tasks`: of the containerd that runs the containers. `labels`: of the runtime's own containers."""
        self._freezers = freezers
        self._pause, self._signal = pause, by_signal
        self._tasks = tasks
        self._labels = labels
        self._hibernated = Records(host.state_directory / "hibernated")
        self._by: dict[UnitId, StrategyName] = {}
        self._calls: Counter[UnitId] = Counter()
        self._suspects: set[UnitId] = set()

    async def open(self, listed: Sequence[UnitSummary]) -> None:
        """Find all frozen containers, also ones that an earlier agent froze. `listed`: all containers, from CRI."""
        running = _running(listed)
        self._by.clear()
        self._suspects.clear()
        self._hibernated.load()
        self._signal.open(running)
        await self._freezers.look(running, is_whole=True)
        await self._freezers.finish(
            [unit.id for unit in listed if self._is_own(unit) and unit.id not in self._calls]
        )
        seen = await self._freezers.look(running, is_whole=True)
        await _for_each(running, lambda unit_id: self._find(unit_id, seen.get(unit_id)))
        for unit_id in self._hibernated:
            if unit_id not in self._by and unit_id not in self._suspects:
                self._hibernated.remove(unit_id)

    def __contains__(self, unit_id: UnitId) -> bool:
        return unit_id in self._by

    def __iter__(self) -> Iterator[UnitId]:
        return iter(tuple(self._by))

    def __len__(self) -> int:
        return len(self._by)

    def strategy_of(self, unit_id: UnitId) -> StrategyName | None:
        return self._by.get(unit_id)

    def is_hibernated(self, unit_id: UnitId) -> bool:
        """Return True if the container is frozen and its memory was reclaimed."""
        return unit_id in self._hibernated

    def add(self, unit_id: UnitId, strategy: StrategyName) -> None:
        """Add a container that was frozen just now; its memory is not reclaimed yet."""
        self._by[unit_id] = strategy
        self._hibernated.remove(unit_id)

    def add_hibernated(self, unit_id: UnitId) -> None:
        self._hibernated.add(unit_id)

    def drop(self, unit_id: UnitId) -> None:
        """Remove a container that runs, has ended or is gone."""
        self._by.pop(unit_id, None)
        self._suspects.discard(unit_id)
        self._hibernated.remove(unit_id)
        self._signal.forget(unit_id)

    def forget(self, unit_id: UnitId) -> None:
        """Remove a container that was removed, with its freezer."""
        self.drop(unit_id)
        self._freezers.forget(unit_id)

    def suspect(self, unit_id: UnitId) -> None:
        """Record that a container may have been paused or resumed; the next look at it asks containerd."""
        self._suspects.add(unit_id)

    @contextmanager
    def call(self, unit_id: UnitId) -> Iterator[None]:
        """Leave the container out of looks while a call changes its state."""
        self._calls[unit_id] += 1
        try:
            yield
        finally:
            self._calls[unit_id] -= 1
            if not self._calls[unit_id]:
                del self._calls[unit_id]

    async def rests(self, unit_id: UnitId) -> bool:
        """Return True if a container in this set is still frozen."""
        name = self._by.get(unit_id)
        if name is None:
            return False
        if name is StrategyName.SIGNAL:
            return await self._signal.is_frozen(unit_id)
        is_frozen = self._freezers.is_frozen(unit_id)
        if is_frozen is None and name is StrategyName.PAUSE:
            return await self._pause.is_frozen(unit_id)
        return is_frozen is not False

    async def find_strategy(self, unit_id: UnitId) -> StrategyName | None:
        """Ask the kernel and containerd which strategy froze a container. None: it runs. Raises NotFound."""
        task = await self._tasks.get(unit_id)
        if task.state in PAUSED:
            return StrategyName.PAUSE
        if task.state is not TaskState.RUNNING:
            return None
        if await self._signal.is_frozen(unit_id):
            return StrategyName.SIGNAL
        self._freezers.add(unit_id, task.pid)
        return StrategyName.FREEZER if self._freezers.is_frozen(unit_id) else None

    async def look(
        self, listed: Sequence[UnitSummary], *, is_whole: bool
    ) -> Mapping[UnitId, tuple[int, ...]]:
        """Find the frozen containers of a list.

        Returns the runtime's own frozen containers that have killed processes, with the ids of these processes. They end
        when the container is thawed. `is_whole`: the list has all containers of the runtime.
        """
        seen = await self._freezers.look(_running(listed), is_whole=is_whole)
        await _for_each(listed, lambda unit: self.refresh(unit, seen.get(unit.id)))
        own = {unit.id for unit in listed if self._is_own(unit)}
        return {
            key: reading.killed
            for key, reading in seen.items()
            if reading.killed and key in own and key in self._by and key not in self._calls
        }

    async def refresh(self, summary: UnitSummary, hint: FreezerReading | None = None) -> None:
        """Update whether one container is frozen. `summary`: from CRI. `hint`: result of a look just before."""
        unit_id = summary.id
        if unit_id in self._calls:
            return
        if summary.state is not UnitState.RUNNING:
            if unit_id in self._by:
                self.drop(unit_id)
            return
        if hint is not None and hint.is_frozen == (unit_id in self._by):
            return
        if unit_id in self._by:
            if not await self.rests(unit_id) and unit_id not in self._calls:
                self.drop(unit_id)
                log.info("A frozen container was thawed by another program", container_id=unit_id)
            return
        is_frozen = self._freezers.is_frozen(unit_id)
        if is_frozen or (is_frozen is None and unit_id in self._suspects):
            await self._discover(unit_id)

    def state_of(self, summary: UnitSummary) -> UnitState:
        """Return the state of a container, PAUSED or SUSPENDED if it is frozen. `summary`: from CRI."""
        if summary.state is not UnitState.RUNNING or summary.id not in self._by:
            return summary.state
        return UnitState.SUSPENDED if summary.id in self._hibernated else UnitState.PAUSED

    def _is_own(self, summary: UnitSummary) -> bool:
        return self._labels.items() <= summary.labels.items()

    async def _discover(self, unit_id: UnitId) -> None:
        name = await self._ask(unit_id)
        if name is not None and unit_id not in self._calls and unit_id not in self._by:
            self._by[unit_id] = name
            log.info("A container was frozen by another program", container_id=unit_id, strategy=name.value)

    async def _find(self, unit_id: UnitId, seen: FreezerReading | None) -> None:
        """Add a container that was frozen before this object was opened."""
        if await self._signal.is_frozen(unit_id):
            self._by[unit_id] = StrategyName.SIGNAL
        elif (seen is None or seen.is_frozen) and (name := await self._ask(unit_id)) is not None:
            self._by[unit_id] = name

    async def _ask(self, unit_id: UnitId) -> StrategyName | None:
        """Return the strategy that froze a container; None if it runs or is gone.

        Also None without an answer; the next look asks again then.
        """
        is_first = unit_id not in self._suspects
        self._suspects.discard(unit_id)
        try:
            return await self.find_strategy(unit_id)
        except NotFound:
            return None
        except KubeletxError as error:
            self._suspects.add(unit_id)
            note = log.warning if is_first else log.debug  # one line for a fault that lasts
            note("Failed to find how a container is frozen", container_id=unit_id, err=str(error))
            return None


async def _for_each(items: Sequence[T], ask: Callable[[T], Awaitable[None]]) -> None:
    """Call `ask` for all items, `ASKS` of them at once."""
    waiting = iter(items)

    async def ask_next() -> None:
        for item in waiting:
            await ask(item)

    async with asyncio.TaskGroup() as group:
        for number in range(min(ASKS, len(items))):
            group.create_task(ask_next(), name=f"look at frozen containers {number}")


def _running(listed: Sequence[UnitSummary]) -> list[UnitId]:
    return [unit.id for unit in listed if unit.state is UnitState.RUNNING]
