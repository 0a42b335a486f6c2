"""`UnitFollower`: events for backends where the end of one unit can be awaited, but nothing pushes events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from .identity import PodUid, SandboxId, UnitId
from .observed import EventKind, RuntimeEvent

if TYPE_CHECKING:
    import asyncio  # at run time only in the methods: the command line imports this package and must start quickly


class UnitFollower:
    """Implements `SupportsEvents.events` for backends where the end of each unit can be awaited."""

    def __init__(self) -> None:
        """Make a follower that follows no unit yet."""
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

        Does nothing if the unit is followed already. `ended` waits for the unit's end; an error counts as an
        end, since the host reads the unit's status after every event.
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
        """Yield starts and ends as they happen, without end. At most one reader at a time."""
        while True:
            yield await self._events.get()

    async def close(self) -> None:
        """Stop following all units; returns once every task has ended. May be called again."""
        import asyncio

        tasks, self._tasks = list(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
