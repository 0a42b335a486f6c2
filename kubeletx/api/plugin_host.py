"""`PluginHost`: services of the agent for health checks, admission checks, pod sources and panels of plugins.

Runtimes have `kubeletx.api.Host` instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from .cluster import ClusterObjects
from .host import HostServices

if TYPE_CHECKING:
    from .records import Records


class PluginHost(HostServices, Protocol):
    """Services that the agent offers to one registered object of a plugin; each registration gets its own."""

    @property
    def name(self) -> str:
        """Name under which the plugin registered the object that uses this host."""
        ...

    @property
    def records(self) -> Records:
        """Records that only this registration uses, stored in the node's state database."""
        ...

    @property
    def cluster(self) -> ClusterObjects | None:
        """Access to API objects that pods refer to; None if the node belongs to no cluster."""
        ...
