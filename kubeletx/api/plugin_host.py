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
    """Services that the host offers to one registration of a plugin; each gets an object of its own."""

    @property
    def name(self) -> str:
        """Name under which the plugin registered it."""
        ...

    @property
    def node_name(self) -> str:
        """The node's name."""
        ...

    @property
    def state_directory(self) -> Path:
        """Directory for this registration alone, with mode 0700; it survives restarts."""
        ...

    @property
    def clock(self) -> Clock:
        """Clock for all waits and times of the plugin."""
        ...

    @property
    def events(self) -> EventSink:
        """Receiver of events that users see."""
        ...

    @property
    def records(self) -> Records:
        """Records of this registration alone, kept in the node's database."""
        ...

    @property
    def cluster(self) -> ClusterObjects | None:
        """Objects that pods of the cluster refer to; None if the node belongs to no cluster."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on one of this registration's few daemon threads, and return its result.

        Raises Unavailable immediately when all of them hang in earlier calls. A call that hangs keeps its
        thread.
        """
        ...
