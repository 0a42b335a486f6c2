"""`FreezerStrategy`: freezes containers by the freezer files of their cgroups, without containerd and runc.

The kernel keeps the state, so that it outlives the agent, containerd and its shims. ``ctr task ls`` shows these
containers as RUNNING, since containerd reads the freezer only after its own calls.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

import structlog

from kubeletx.api import Conflict, Host, UnitId, Unsupported
from kubeletx.cri import ContainerdTasks, TaskState

from .cgroups import Hierarchy, container_cgroup, container_cgroups, find_hierarchy
from .freezer import Freezer, FreezerState

log = structlog.get_logger(__name__)

_RESTING = (FreezerState.FREEZING, FreezerState.FROZEN)


class FreezerStrategy:
    """Strategy ``freezer``. Implements `Strategy`."""

    def __init__(self, tasks: ContainerdTasks, host: Host) -> None:
        """`tasks`: of the containerd that runs the containers; used to find their processes."""
        self._tasks = tasks
        self._host = host
        self._hierarchy: Hierarchy | None = None
        self._freezers: dict[UnitId, Freezer] = {}

    async def find_frozen(self, running: Callable[[], Awaitable[Iterable[UnitId]]]) -> Iterable[UnitId]:
        """Search the whole freezer hierarchy for frozen containers; none if no freezer is mounted."""
        try:
            self._hierarchy = find_hierarchy("freezer")
        except Unsupported as error:
            log.warning("Found no freezer", err=str(error))
            self._hierarchy, self._freezers = None, {}
        else:
            self._freezers = await self._host.blocking(_frozen, self._hierarchy)
        return tuple(self._freezers)

    async def freeze(self, unit_id: UnitId) -> None:
        """Write to the freezer of the container's cgroup, and wait until all its threads are frozen.

        Raises Unsupported if no freezer is mounted on the node.
        """
        freezer = await self._find(unit_id)
        try:
            await freezer.freeze(self._host.clock)
        except Conflict as error:
            raise Conflict(f"container {unit_id}: {error}") from error
        self._freezers[unit_id] = freezer

    async def thaw(self, unit_id: UnitId) -> None:
        """Write to the freezer of the container's cgroup, which is known if this object froze the container."""
        freezer = self._freezers.get(unit_id) or await self._find(unit_id)
        try:
            await freezer.thaw(self._host.clock)
        except Conflict as error:
            raise Conflict(f"container {unit_id}: {error}") from error

    async def is_frozen(self, unit_id: UnitId) -> bool:
        """Read the freezer file of a known container; False for any other container."""
        freezer = self._freezers.get(unit_id)
        return freezer is not None and freezer.state() in _RESTING

    def forget(self, unit_id: UnitId) -> None:
        """Drop the path of the container's freezer."""
        self._freezers.pop(unit_id, None)

    async def _find(self, unit_id: UnitId) -> Freezer:
        hierarchy = self._hierarchy or find_hierarchy("freezer")
        task = await self._tasks.get(unit_id)
        if task.state in (TaskState.STOPPED, TaskState.CREATED):
            raise Conflict(f"container {unit_id} is {task.state.value}, not running")
        return Freezer(container_cgroup(hierarchy, task.pid, unit_id), hierarchy.version)


def _frozen(hierarchy: Hierarchy) -> dict[UnitId, Freezer]:
    found = {}
    for container_id, directory in container_cgroups(hierarchy):
        freezer = Freezer(directory, hierarchy.version)
        if freezer.state() in _RESTING:
            found[UnitId(container_id)] = freezer
    return found
