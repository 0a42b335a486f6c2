"""`PrioritySemaphore`: limits concurrent calls, with two priorities.

Calls that continue the start of a pod go before calls that begin one. With one queue, thirty pods that start together
would all get their sandbox before the first of them gets a container. With two queues, pods become ready one after
another, at the same throughput.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class PrioritySemaphore:
    """Semaphore of `limit` slots with two queues, for one event loop.

    A released slot goes to the first waiter of the front queue or, if that is empty, of the back queue.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._front: deque[asyncio.Future[None]] = deque()
        self._back: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        return self._free > 0

    async def acquire(self, *, behind: bool = False) -> None:
        """Take a slot; wait for one if necessary. `behind`: wait in the back queue instead of the front queue."""
        if self._free > 0:
            self._free -= 1
            return
        queue = self._back if behind else self._front
        slot = asyncio.get_running_loop().create_future()
        queue.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled():  # the slot was granted at the time of the cancellation
                self.release()
            with contextlib.suppress(ValueError):
                queue.remove(slot)
            raise

    def release(self) -> None:
        """Release one slot, to the next waiter if there is one."""
        for queue in (self._front, self._back):
            while queue:
                slot = queue.popleft()
                if not slot.done():
                    slot.set_result(None)
                    return
        self._free += 1
