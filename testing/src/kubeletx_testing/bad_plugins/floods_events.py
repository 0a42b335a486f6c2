"""A runtime that sends events without end.

Fault: an event is sent again and again, although nothing changed.
What the agent does: it merges events that repeat one another, closes a stream with more than 1,000 events a second for
10 s to 5 minutes, lists the runtime each second meanwhile, and reports it with event `RuntimeEventsThrottled`.
Correct code sends one event for each change.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from kubeletx.api import Endpoint, EventKind, Host, PodUid, RegisterRuntime, RuntimeEvent, UnitId, hookimpl
from kubeletx.testing import FakeRuntime

EVENTS_PER_SECOND = 50_000
_PAUSE_SECONDS = 0.001


class FloodingRuntime(FakeRuntime):
    """A fake runtime whose event stream is silent until `flood` is called, and then repeats events without end."""

    def __init__(
        self, name: str = "bad", *, per_second: int = EVENTS_PER_SECOND, waits: bool = True, **more: Any
    ) -> None:
        """`per_second`: events for each second on the clock. `more`: arguments of `FakeRuntime`.

        `waits` False: the stream never waits, so that other tasks run only if the reader lets them.
        """
        super().__init__(name, **more)
        self._per_pause = max(1, round(per_second * _PAUSE_SECONDS))
        self._pause_seconds = self._per_pause / per_second
        self._waits = waits
        self._begun = asyncio.Event()
        self._next: Callable[[], RuntimeEvent] = lambda: RuntimeEvent(kind=EventKind.RESYNC)
        self.sent = 0
        """Number of events that readers took."""

    def flood(self, event: RuntimeEvent | Callable[[], RuntimeEvent]) -> None:
        """Send this event, or the results of this function, in every stream from now on."""
        self._next = event if callable(event) else lambda: event
        self._begun.set()

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield events without end, once the flood has begun."""
        self.counts["events"] += 1
        await self._begun.wait()
        while True:
            for _ in range(self._per_pause):
                self.sent += 1
                yield self._next()
            if self._waits:
                await self.clock.sleep(self._pause_seconds)


def unknown_events(count: int = 10_000) -> Callable[[], RuntimeEvent]:
    """Return a function whose events report the start of containers of pods that the agent does not know.

    `count`: number of different ids; after that they repeat.
    """
    number = 0

    def next_event() -> RuntimeEvent:
        nonlocal number
        number = (number + 1) % count
        uid = PodUid(f"uid-unknown-{number}")
        return RuntimeEvent(kind=EventKind.STARTED, unit_id=UnitId(f"unknown-{number}"), uid=uid)

    return next_event


def _make(endpoint: Endpoint, _settings: object, host: Host) -> FloodingRuntime:
    runtime = FloodingRuntime(endpoint.name, clock=host.clock)
    runtime.flood(unknown_events())
    return runtime


@hookimpl
def kubeletx_register_runtimes(register: RegisterRuntime) -> None:
    """Register the kind ``floods-events``."""
    register("floods-events", _make, workload_types=("container",), schemes=("bad",))
