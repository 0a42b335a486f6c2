"""Processes of isolated runtimes, as ``kubeletx plugins -o wide`` and ``kubeletx describe runtime`` show them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.server.views import PluginProcessView

if TYPE_CHECKING:  # loaded only when something is isolated, to save memory
    from kubeletx.runtimes.isolation.usage import ChildUsage


def process_of(registry: RuntimeRegistry, name: str) -> PluginProcessView | None:
    """Return the process in which the plugin of the runtime `name` runs.

    None if that is the agent's process, or while no process of the plugin runs.
    """
    handle = registry.get(name)
    isolated = registry.fleet.isolated.get(handle.name)
    usage = isolated.usage() if isolated is not None else None
    return view_of(usage, name)


def view_of(usage: ChildUsage | None, runtime: str = "") -> PluginProcessView | None:
    """Return the view of a process; None if it does not run. `runtime`: empty for a process of other hooks."""
    if usage is None:
        return None
    return PluginProcessView(
        runtime=runtime,
        pid=usage.pid,
        memory_bytes=usage.memory_bytes,
        cpu_seconds=round(usage.cpu_seconds, 2),
        restarts=usage.restarts,
    )


def processes_of(registry: RuntimeRegistry, kinds: Iterable[str]) -> tuple[PluginProcessView, ...]:
    """Return the processes of all runtimes of these kinds, in the order of the runtimes."""
    wanted = set(kinds)
    found = [process_of(registry, handle.name) for handle in registry.handles() if handle.kind in wanted]
    return tuple(one for one in found if one is not None)
