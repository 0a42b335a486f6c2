"""`Freezers`: the freezers of the containers of one runtime, by container id. They are strategy ``freezer``.

The freezer files of a cgroup are written without containerd and runc. The kernel keeps the state, so that it outlives
the agent, containerd and its shims. ``ctr task ls`` shows these containers as RUNNING, since containerd reads the
freezer only after its own calls.

Lists read them to find the containers that are frozen, also by other programs. A search of the hierarchy finds the
cgroups, so that no call to containerd is needed. It is repeated only after a container was started. The cgroups of
containers in a machine are not found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import structlog

from kubeletx.api import Conflict, Host, KubeletxError, UnitId, Unsupported
from kubeletx.cri import ContainerdTasks, TaskState

from .cgroups import PROC, Hierarchy, container_cgroup, container_cgroups, find_hierarchy
from .freezer import Freezer, FreezerState
from .killed import find_killed

log = structlog.get_logger(__name__)

_RESTING = (FreezerState.FREEZING, FreezerState.FROZEN)
UNFINISHED_SECONDS = 1.0
"""Deadline of ending a freeze that an earlier agent process began."""


class FreezerReading(NamedTuple):
    """Result of reading one freezer: whether its container is frozen, and which of its processes were killed.

    `killed`: ids of processes of a frozen container that were killed and end when it is thawed.
    """

    is_frozen: bool
    killed: tuple[int, ...] = ()


class Freezers:
    """Freezers of one runtime's containers. Implements `Strategy`."""

    def __init__(self, tasks: ContainerdTasks, host: Host, proc: Path = PROC) -> None:
        self._tasks = tasks
        self._host = host
        self._proc = proc
        self._hierarchy: Hierarchy | None = None
        self._known: dict[UnitId, Freezer] = {}
        self._hidden: set[UnitId] = set()
        self._one_look = asyncio.Lock()

    def open(self) -> None:
        """Find the mounted freezer, and drop all known containers."""
        self._known.clear()
        self._hidden.clear()
        try:
            self._hierarchy = find_hierarchy("freezer", self._proc)
        except Unsupported:
            self._hierarchy = None

    @property
    def is_mounted(self) -> bool:
        """True if a hierarchy with a freezer was mounted when the runtime was opened."""
        return self._hierarchy is not None

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze a container. Raises Unsupported if no freezer is mounted on the node."""
        freezer = await self.find(unit_id)
        with _conflicts_of(unit_id):
            await freezer.freeze(self._host.clock)

    async def thaw(self, unit_id: UnitId) -> None:
        """Thaw a container. Its freezer is known if it was found frozen: no call to containerd is needed then."""
        freezer = self.get(unit_id) or await self.find(unit_id)
        with _conflicts_of(unit_id):
            await freezer.thaw(self._host.clock)

    async def find(self, unit_id: UnitId) -> Freezer:
        """Find a container's freezer by its process.

        Raises NotFound if the container has no task, Conflict if it is not running or its process is not in its cgroup,
        and Unsupported if the node has no freezer.
        """
        hierarchy = self._hierarchy or find_hierarchy("freezer", self._proc)
        task = await self._tasks.get(unit_id)
        if task.state is not TaskState.RUNNING:
            raise Conflict(f"container {unit_id} is {task.state.value}, not running")
        return self._add(hierarchy, unit_id, task.pid)

    def add(self, unit_id: UnitId, pid: int) -> Freezer | None:
        """Find a container's freezer by the id of its first process; None if it cannot be found."""
        if unit_id not in self._known and self._hierarchy is not None:
            try:
                self._add(self._hierarchy, unit_id, pid)
            except KubeletxError:
                return None
        return self._known.get(unit_id)

    def get(self, unit_id: UnitId) -> Freezer | None:
        return self._known.get(unit_id)

    def is_frozen(self, unit_id: UnitId) -> bool | None:
        """Read the freezer of a container; None if it is not known or cannot be read."""
        freezer = self._known.get(unit_id)
        if freezer is None:
            return None
        try:
            return freezer.state() in _RESTING
        except KubeletxError as error:
            log.warning("Failed to read a freezer", container_id=unit_id, err=str(error))
            return None

    def forget(self, unit_id: UnitId) -> None:
        self._known.pop(unit_id, None)
        self._hidden.discard(unit_id)

    async def look(self, unit_ids: Iterable[UnitId], *, is_whole: bool) -> dict[UnitId, FreezerReading]:
        """Read the freezers of running containers, and the pending signals of the processes of frozen ones.

        Containers whose freezer is not known are left out. `is_whole`: `unit_ids` has all running containers of the
        runtime; unknown ones are then searched.
        """
        wanted = set(unit_ids)
        if is_whole:
            self._known = {key: known for key, known in self._known.items() if key in wanted}
            self._hidden &= wanted
        missing = wanted - self._known.keys() - self._hidden if is_whole else set()
        known = {key: self._known[key] for key in wanted if key in self._known}
        if self._hierarchy is None or not (known or missing):
            return {}
        if is_whole:
            async with self._one_look:
                freezers, seen = await self._host.blocking(_look, self._hierarchy, known, missing)
        else:  # the few containers of a pod; a thread for each look would be too many
            freezers, seen = _look(self._hierarchy, known, missing)
        for unit_id, freezer in freezers.items():
            self._known.setdefault(unit_id, freezer)
        self._hidden |= missing - freezers.keys()
        return seen

    async def finish(self, unit_ids: Iterable[UnitId]) -> None:
        """End the freezes of these containers that a killed agent process began and did not end.

        Containers whose freezer is not known are left out. A container that is not frozen after `UNFINISHED_SECONDS`
        runs again, as after any freeze that fails.
        """
        known = {key: self._known[key] for key in unit_ids if key in self._known}
        unfinished = {key: freezer for key, freezer in known.items() if _is_unfinished(freezer)}
        await asyncio.gather(*(self._finish(key, freezer) for key, freezer in unfinished.items()))

    async def _finish(self, unit_id: UnitId, freezer: Freezer) -> None:
        try:
            await freezer.freeze(self._host.clock, UNFINISHED_SECONDS)
        except KubeletxError as error:
            log.warning("Undid an unfinished freeze", container_id=unit_id, err=str(error))

    def _add(self, hierarchy: Hierarchy, unit_id: UnitId, pid: int) -> Freezer:
        freezer = Freezer(container_cgroup(hierarchy, pid, unit_id, self._proc), hierarchy.version)
        self._known[unit_id] = freezer
        return freezer


@contextmanager
def _conflicts_of(unit_id: UnitId) -> Iterator[None]:
    """Add the container to the message of a Conflict."""
    try:
        yield
    except Conflict as error:
        raise Conflict(f"container {unit_id}: {error}") from error


def _is_unfinished(freezer: Freezer) -> bool:
    try:
        return freezer.state() is FreezerState.FREEZING
    except KubeletxError:
        return False


def _look(
    hierarchy: Hierarchy, known: dict[UnitId, Freezer], missing: set[UnitId]
) -> tuple[dict[UnitId, Freezer], dict[UnitId, FreezerReading]]:
    """Return the freezers of containers in `missing`, and the state of all. Blocks, 0.1 ms for each container."""
    freezers: dict[UnitId, Freezer] = {}
    if missing:
        for container_id, directory in container_cgroups(hierarchy):
            if container_id in missing:
                freezers[UnitId(container_id)] = Freezer(directory, hierarchy.version)
    seen = {}
    for unit_id, freezer in {**known, **freezers}.items():
        try:
            state = freezer.state()
        except KubeletxError as error:
            log.warning("Failed to read a freezer", container_id=unit_id, err=str(error))
            continue
        if state is FreezerState.GONE:
            continue
        is_frozen = state in _RESTING
        killed = find_killed(freezer.directory) if is_frozen and hierarchy.version == 1 else ()
        seen[unit_id] = FreezerReading(is_frozen, killed)
    return freezers, seen
