"""`Flights`: ten pods, one pull.

A flight is one running pull. Whoever wants the same image joins it and shares its result; when the last one
loses interest, the pull is cancelled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kubeletx.api import ImageStatus, PullProgress, Unavailable

OnProgress = Callable[[PullProgress], None]


@dataclass(slots=True, eq=False)
class Flight:
    """One running pull. `began_at`: monotonic."""

    image: str
    began_at: float
    task: asyncio.Task[ImageStatus] | None = None
    waiting: int = 0
    progress: PullProgress = field(default_factory=lambda: PullProgress(message="waiting"))
    listeners: list[OnProgress] = field(default_factory=list)

    def report(self, progress: PullProgress) -> None:
        """Tell everybody who waits."""
        self.progress = progress
        for listener in self.listeners:
            listener(progress)


class Flights:
    """The running pulls of one store by image."""

    def __init__(self) -> None:
        self._flights: dict[str, Flight] = {}

    @property
    def all(self) -> Mapping[str, Flight]:
        """The running pulls; a live, read-only view."""
        return MappingProxyType(self._flights)

    async def join(
        self,
        image: str,
        now: float,
        pull: Callable[[Flight], Awaitable[ImageStatus]],
        on_progress: OnProgress | None = None,
    ) -> ImageStatus:
        """The result of the pull that runs already, or of a new one."""
        flight = self._flights.get(image)
        if flight is None:
            flight = self._flights[image] = Flight(image, now)
            flight.task = asyncio.create_task(self._fly(flight, pull), name=f"pull-{image}")
            flight.task.add_done_callback(_retrieve)
        if on_progress is not None:
            flight.listeners.append(on_progress)
            on_progress(flight.progress)
        assert flight.task is not None
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise Unavailable(f"the pull of {image!r} was cancelled") from None
        finally:
            flight.waiting -= 1
            if on_progress is not None:
                flight.listeners.remove(on_progress)
            if flight.waiting == 0 and not flight.task.done():
                self._forget(flight)
                flight.task.cancel()

    async def close(self) -> None:
        """Cancel everything that runs and wait for its end."""
        tasks = [flight.task for flight in self._flights.values() if flight.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fly(self, flight: Flight, pull: Callable[[Flight], Awaitable[ImageStatus]]) -> ImageStatus:
        try:
            return await pull(flight)
        finally:
            self._forget(flight)

    def _forget(self, flight: Flight) -> None:
        if self._flights.get(flight.image) is flight:
            del self._flights[flight.image]


def _retrieve(task: asyncio.Task[ImageStatus]) -> None:
    if not task.cancelled():
        task.exception()
