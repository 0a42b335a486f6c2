"""`PluginHost`: services of the agent for health checks, admission checks, pod sources and panels of plugins.

Runtimes have `kubeletx.api.Host` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from .cluster import ClusterObjects
from .host import Clock, EventSink

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from .records import Records


class PluginHost(Protocol):
    """Services that the agent offers to one registered object of a plugin, such as one health check.

    Each registration gets its own `PluginHost`.
    """

    @property
    def name(self) -> str:
        """Name under which the plugin registered the object that uses this host."""
        ...

    @property
    def node_name(self) -> str:
        """The node's name."""
        ...

    @property
    def state_directory(self) -> Path:
        """Directory that only this registration uses, with mode 0700. Its files survive restarts of the agent."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock that the plugin must use to wait and to read the time."""
        ...

    @property
    def events(self) -> EventSink:
        """Sink through which the plugin records events for users."""
        ...

    @property
    def records(self) -> Records:
        """Records that only this registration uses, stored in the node's state database."""
        ...

    @property
    def cluster(self) -> ClusterObjects | None:
        """Access to API objects that pods refer to; None if the node belongs to no cluster."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on one of this registration's few daemon threads, and return its result.

        Raises Unavailable immediately when all these threads are busy with earlier calls. A call that hangs
        occupies its thread until it returns.
        """
        ...
