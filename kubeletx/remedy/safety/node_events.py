"""`NodeEvents`: times of events about nodes, such as node-problem-detector's, for thresholds. Implements `ReflectorSink`.

An event that repeats is one object whose count grows. Of an event with a count that was not followed from its beginning, only the
first and the last time are known, so that it counts twice at most: a new controller starts a flow later, never earlier.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence, Set
from datetime import datetime
from typing import Final

from kubeletx.kube.types.event import Event
from kubeletx.kube.types.meta import ObjectMeta

MOST_TIMES: Final = 1000


class NodeEvents:
    """Events by node and reason. `changed` gets the name of a node that has a new one."""

    def __init__(self, changed: Callable[[str], object]) -> None:
        self.times: dict[tuple[str, str], deque[datetime]] = {}
        self._changed = changed
        self._counts: dict[str, int] = {}

    def replace(self, items: Sequence[Event], unreadable: Sequence[ObjectMeta]) -> None:
        there = {item.metadata.uid for item in items} | {meta.uid for meta in unreadable}
        self._counts = {uid: count for uid, count in self._counts.items() if uid in there}
        for item in items:
            self.put(item)

    def put(self, item: Event) -> None:
        count, known = item.count or 1, self._counts.get(item.metadata.uid)
        last = (
            item.last_timestamp or item.event_time or item.first_timestamp or item.metadata.creation_timestamp
        )
        name, reason = item.involved_object.name, item.reason
        if not name or not reason or last is None or (known is not None and count <= known):
            return
        self._counts[item.metadata.uid] = count
        first = item.first_timestamp if known is None and count > 1 else None
        new = [first or last, last] if first else [last] * min(count - (known or count - 1), MOST_TIMES)
        self.times.setdefault((name, reason), deque(maxlen=MOST_TIMES)).extend(new)
        self._changed(name)

    def drop(self, item: Event) -> None:
        self._counts.pop(item.metadata.uid, None)

    def forget(self, nodes: Set[str]) -> None:
        """Drop the times of events about these nodes, which are gone."""
        if nodes:
            self.times = {key: times for key, times in self.times.items() if key[0] not in nodes}

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        del meta, problem  # the reflector has logged it
