"""`UnitFollower`: makes runtime events for a backend that sends none, but where the end of a unit can be awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from .identity import PodUid, SandboxId, UnitId
from .observed import EventKind, RuntimeEvent

if TYPE_CHECKING:
    import asyncio  # at run time only in the methods: the command line imports this package and must start quickly


class UnitFollower:
    """Makes the events of `SupportsEvents` for a backend that sends none, such as local child processes.

    For each unit (process, container or virtual machine) one task waits until the unit has ended.
    """

    def __init__(self) -> None:
        """Create a follower that follows no unit yet."""
        import asyncio

        self._tasks: dict[UnitId, asyncio.Task[object]] = {}
        self._events: asyncio.Queue[RuntimeEvent] = asyncio.Queue()

    def follow(
        self,
        unit_id: UnitId,
        sandbox_id: SandboxId,
        uid: PodUid,
        ended: Callable[[], Coroutine[Any, Any, object]],
    ) -> None:
        """Emit a STARTED event for the unit now, and a STOPPED event once `ended` returns or raises.

        `ended`: waits until the unit has ended. If it raises, STOPPED is emitted too; the agent reads the unit's
        real status after every event. `uid`: the pod's UID. Does nothing if the unit is followed already.
        """
        import asyncio

        if unit_id in self._tasks:
            return

        def tell(kind: EventKind) -> None:
            self._events.put_nowait(RuntimeEvent(kind=kind, uid=uid, sandbox_id=sandbox_id, unit_id=unit_id))

        def tell_end(task: asyncio.Task[object]) -> None:
            if not task.cancelled():
                self._tasks.pop(unit_id, None)
                tell(EventKind.STOPPED)

        tell(EventKind.STARTED)
        self._tasks[unit_id] = asyncio.create_task(ended(), name=f"follow-{unit_id}")
        self._tasks[unit_id].add_done_callback(tell_end)

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield STARTED and STOPPED events as they happen, forever. At most one task may read at a time."""
        while True:
            yield await self._events.get()

    async def close(self) -> None:
        """Stop following all units, without further events. Returns once every task has ended; may be called again."""
        import asyncio

        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
