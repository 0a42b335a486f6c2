"""Part: the watchdog of the event loop."""

from __future__ import annotations

import msgspec

from kubeletx.server.views import PartHealth

from ..host.watchdog import EventLoopWatchdog
from .part import Part


class EventLoopRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_event_loop`: the part of the watchdog, which runs already."""

    part: Part


def make_event_loop() -> EventLoopRoom:
    """Start the watchdog of the running event loop."""
    watchdog = EventLoopWatchdog()
    watchdog.start()

    def health() -> tuple[PartHealth, ...]:
        stalled = "" if watchdog.is_alive else f"the event loop stalled for {watchdog.worst_seconds:.1f} s"
        return (PartHealth(name="syncloop", ok=not stalled, message=stalled),)

    return EventLoopRoom(part=Part(name="event-loop", close=(watchdog.close,), health=(health,)))
