"""`Turns`: a limit of calls at once, with two queues: who finishes what was begun goes before who begins anew.

With one queue, thirty pods that start together would all get their sandbox before the first of them gets a
container. With two, pods come up one after another, at the same throughput.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque


class Turns:
    """Belongs to one event loop. A turn that is given back goes straight to who waits longest."""

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._front: deque[asyncio.Future[None]] = deque()
        self._back: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether `take` would return at once."""
        return self._free > 0

    async def take(self, *, behind: bool = False) -> None:
        """Wait for a turn; `behind` all others that wait."""
        if self._free > 0:
            self._free -= 1
            return
        queue = self._back if behind else self._front
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it came together with the cancellation
                self.give_back()
            with contextlib.suppress(ValueError):
                queue.remove(turn)
            raise

    def give_back(self) -> None:
        """End one's turn."""
        for queue in (self._front, self._back):
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    turn.set_result(None)
                    return
        self._free += 1
