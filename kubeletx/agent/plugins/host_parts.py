"""`PluginHostParts`: what the hosts of all registrations share."""

from __future__ import annotations

from pathlib import Path

import msgspec

from kubeletx.api import Clock, ClusterObjects, EventSink, RecordKinds


class PluginHostParts(msgspec.Struct, frozen=True, kw_only=True):
    """`root`: the agent's root directory. `records`: by kind. `cluster` None: the node belongs to no cluster."""

    node_name: str
    root: Path
    clock: Clock
    events: EventSink
    records: RecordKinds
    cluster: ClusterObjects | None = None
