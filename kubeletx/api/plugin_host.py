"""`PluginHost`: what the host offers to everything that a plugin registers besides runtimes."""

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
    """The host as a registration sees it; one object each."""

    @property
    def name(self) -> str:
        """The name that the plugin registered."""
        ...

    @property
    def node_name(self) -> str:
        """The node's name."""
        ...

    @property
    def state_directory(self) -> Path:
        """A directory for this registration alone (0700); survives restarts."""
        ...

    @property
    def clock(self) -> Clock:
        """The injected clock."""
        ...

    @property
    def events(self) -> EventSink:
        """Receiver of events for users."""
        ...

    @property
    def records(self) -> Records:
        """Records of this registration alone, in the node's database."""
        ...

    @property
    def cluster(self) -> ClusterObjects | None:
        """Objects that pods of the cluster refer to; None if the node belongs to no cluster."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on a few daemon threads of this registration.

        Raises Unavailable at once when all of them hang; a hung call keeps its thread.
        """
        ...
