"""Component of the agent: the watchdog of the event loop, which logs stalls and ends an agent that a plugin blocks."""

from __future__ import annotations

import msgspec

from kubeletx.server.views import PartHealth

from ..config.tree import AgentConfig
from ..host.stall_limit import StallLimit
from ..host.watchdog import EventLoopWatchdog
from .part import Part


class EventLoopAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_event_loop`: the watchdog of the event loop, whose thread runs already."""

    part: Part


def make_event_loop(config: AgentConfig) -> EventLoopAssembly:
    """Start the watchdog of the running event loop; its health check is named ``syncloop``."""
    watchdog = EventLoopWatchdog(
        limit_seconds=config.plugins.stall_seconds,
        on_limit=StallLimit(config.root_dir, config.plugins.stall_action),
    )
    watchdog.start()

    def health() -> tuple[PartHealth, ...]:
        stalled = "" if watchdog.is_alive else f"the event loop stalled for {watchdog.worst_seconds:.1f} s"
        return (PartHealth(name="syncloop", ok=not stalled, message=stalled),)

    return EventLoopAssembly(part=Part(name="event-loop", close=(watchdog.close,), health=(health,)))
