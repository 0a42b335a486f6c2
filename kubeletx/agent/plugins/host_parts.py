"""`PluginHostParts`: values that the hosts of all registrations share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kubeletx.api import Clock, ClusterObjects, EventSink

if TYPE_CHECKING:
    from kubeletx.api import RecordKinds  # an agent without plugins does not load records


class PluginHostParts(msgspec.Struct, frozen=True, kw_only=True):
    """Parts that the `PluginHost` objects of all plugins share.

    `root`: the agent's root directory. `records`: gives the `Records` of one kind of object. `cluster` None: the node
    is in no cluster.
    """

    node_name: str
    root: Path
    clock: Clock
    events: EventSink
    records: RecordKinds
    cluster: ClusterObjects | None = None
