"""`PluginHostParts`: values that the `PluginHost` objects of all plugin registrations share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import Clock, ClusterObjects, EventSink

if TYPE_CHECKING:  # an agent without plugins does not load these
    from kubeletx.api import RecordKinds
    from kubeletx.runtimes.isolation.limits import ChildCgroup


class PluginHostParts(msgspec.Struct, frozen=True, kw_only=True):
    """Values that the `PluginHost` objects of all plugin registrations share.

    `root`: the agent's root directory. `records`: returns the `Records` of one kind. `cluster`: access to the cluster's
    objects; None: the node is in no cluster.
    """

    node_name: str
    root: Path
    clock: Clock
    events: EventSink
    records: RecordKinds
    cluster: ClusterObjects | None = None
    child_cgroup: Callable[[str], ChildCgroup] | None = None
    """Returns the cgroup for the child process of a distribution; None: children have no cgroups of their own."""
    volume_plugin_directory: Path = Path()
    """Directory of executable volume drivers (``--volume-plugin-dir``)."""
