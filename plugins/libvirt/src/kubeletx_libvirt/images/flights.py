"""`Flights`: ten pods, one image, one download.

Whoever wants a source that is being fetched joins in and shares the result. When the last one is cancelled the
fetch is cancelled too, and its end is awaited by the next one who wants the same source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from kubeletx.api import PullProgress, Unavailable

Report = Callable[[PullProgress], None]


class _Flight:
    def __init__(self) -> None:
        self.task: asyncio.Task[str] | None = None
        self.waiting = 0
        self.progress = PullProgress(message="waiting")
        self.listeners: list[Report] = []

    def report(self, progress: PullProgress) -> None:
        self.progress = progress
        for listener in tuple(self.listeners):
            listener(progress)


class Flights:
    """The running fetches by source."""

    def __init__(self) -> None:
        self._flights: dict[str, _Flight] = {}

    async def join(self, key: str, fetch: Callable[[Report], Awaitable[str]], progress: Report | None) -> str:
        """The result of the fetch that runs, or of a new one."""
        while (
            (flight := self._flights.get(key)) is not None and flight.waiting == 0 and flight.task is not None
        ):
            await asyncio.wait((flight.task,))  # cancelled by its last waiter, not ended yet
            await asyncio.sleep(0)  # lets `_ended` run
        if flight is None:
            flight = self._flights[key] = _Flight()
            flight.task = asyncio.create_task(_fly(flight, fetch), name=f"image {key}")
            flight.task.add_done_callback(lambda task: self._ended(key, task))
        assert flight.task is not None
        if progress is not None:
            flight.listeners.append(progress)
            progress(flight.progress)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise Unavailable(f"the pull of {key!r} was cancelled") from None
        finally:
            flight.waiting -= 1
            if progress is not None:
                flight.listeners.remove(progress)
            if flight.waiting == 0 and not flight.task.done():
                flight.task.cancel()

    async def close(self) -> None:
        """Cancel everything and wait for its end."""
        tasks = [flight.task for flight in self._flights.values() if flight.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: str, task: asyncio.Task[str]) -> None:
        """Also of a task that was cancelled before it began."""
        del self._flights[key]
        if not task.cancelled():
            task.exception()  # seen, even when everybody who waited was cancelled


async def _fly(flight: _Flight, fetch: Callable[[Report], Awaitable[str]]) -> str:
    return await fetch(flight.report)
