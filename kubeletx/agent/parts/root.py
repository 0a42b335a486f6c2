"""Components of the agent: the root directory with its lock, agent id and state database; the event loop's watchdog."""

from __future__ import annotations

import os
from functools import partial

from kubeletx.api import Clock
from kubeletx.plugins.loading import Plugins
from kubeletx.server.views import PartHealth
from kubeletx.store import Store

from ..config.tree import AgentConfig
from ..host.identity import ensure_agent_id, lock_root, make_directory
from ..host.readings import HostReadings, read_host
from ..host.stall_limit import StallLimit
from ..host.watchdog import EventLoopWatchdog
from .part import Composition, Part, PartContext

DATABASE = "kubeletx.db"


def make_root(
    made: Composition, config: AgentConfig, plugins: Plugins, clock: Clock, host: HostReadings | None
) -> PartContext:
    """Lock the root directory for this process, and read the agent id and the state of the machine.

    Returns the input of all other factories; its store is not open yet. Raises InvalidConfig if another agent holds the
    lock or the directory is unusable. `host`: state of the machine; None reads it from this machine.
    """
    lock = lock_root(config.root_dir)
    try:
        agent_id, was_here = ensure_agent_id(config.root_dir)
        make_directory(config.logs.pod_logs_dir, "--pod-logs-dir")
        host = host or read_host()
    except BaseException:
        os.close(lock)
        raise
    store = Store(config.root_dir / DATABASE, expected=was_here)
    made.add(Part(name="root", close=(partial(os.close, lock), store.close)))
    return PartContext(
        made=made, config=config, plugins=plugins, clock=clock, host=host, agent_id=agent_id, store=store
    )


def make_event_loop(ctx: PartContext) -> None:
    """Start the watchdog of the running event loop, which logs stalls and ends an agent that a plugin blocks.

    Its health check is named ``syncloop``.
    """
    config = ctx.config
    watchdog = EventLoopWatchdog(
        limit_seconds=config.plugins.stall_seconds,
        on_limit=StallLimit(config.root_dir, config.plugins.stall_action),
    )
    watchdog.start()

    def health() -> tuple[PartHealth, ...]:
        stalled = "" if watchdog.is_alive else f"the event loop stalled for {watchdog.worst_seconds:.1f} s"
        return (PartHealth(name="syncloop", ok=not stalled, message=stalled),)

    ctx.made.add(Part(name="event-loop", close=(watchdog.close,), health=(health,)))
