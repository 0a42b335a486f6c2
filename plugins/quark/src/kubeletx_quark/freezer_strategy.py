"""`FreezerStrategy`: freezes containers by the freezer files of their cgroups, without containerd and runc.

The kernel keeps the state, so that it outlives the agent, containerd and its shims. ``ctr task ls`` shows these
containers as RUNNING, since containerd reads the freezer only after its own calls.
"""

from __future__ import annotations

from kubeletx.api import Clock, Conflict, UnitId

from .freezers import Freezers


class FreezerStrategy:
    """Strategy ``freezer``. Implements `Strategy`."""

    def __init__(self, freezers: Freezers, clock: Clock) -> None:
        self._freezers = freezers
        self._clock = clock

    async def freeze(self, unit_id: UnitId) -> None:
        """Write to the freezer of the container's cgroup, and wait until all its threads are frozen.

        Raises Unsupported if no freezer is mounted on the node.
        """
        freezer = await self._freezers.find(unit_id)
        try:
            await freezer.freeze(self._clock)
        except Conflict as error:
            raise Conflict(f"container {unit_id}: {error}") from error

    async def thaw(self, unit_id: UnitId) -> None:
        """Write to the freezer of the container's cgroup, which is known if the container was found frozen."""
        freezer = self._freezers.get(unit_id) or await self._freezers.find(unit_id)
        try:
            await freezer.thaw(self._clock)
        except Conflict as error:
            raise Conflict(f"container {unit_id}: {error}") from error
