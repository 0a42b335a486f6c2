"""The cluster as this controller sees it: nodes and records by watches, and times by its own monotonic clock."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Generic, TypeVar

import msgspec

from kubeletx.api import Clock
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.reflector import Reflector
from kubeletx.kube.client.resources import EVENTS, NODES
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.meta import ObjectMeta, is_older

from .model import FENCE_PREFIX, NODE_FENCES, FenceFlow, NodeFence, NodeView
from .planner import FlowTimes
from .safety.node_events import NodeEvents

_Item = TypeVar("_Item", NodeView, NodeFence)


class WatchedObjects(Generic[_Item]):
    """Objects of one resource by the node's name. Implements `ReflectorSink`.

    `touched`: names that have changed since they were last taken. `unreadable`: names of objects that are on the server but
    cannot be read; they stay as they were: no answer is not "gone".
    """

    def __init__(self, name_of: Callable[[_Item], str], changed: asyncio.Event) -> None:
        self.items: dict[str, _Item] = {}
        self.touched: set[str] = set()
        self.unreadable: set[str] = set()
        self._name_of: Callable[[_Item], str] = name_of
        self._changed = changed

    def replace(self, items: Sequence[_Item], unreadable: Sequence[ObjectMeta]) -> None:
        kept = {meta.name for meta in unreadable}
        self.unreadable.clear()
        found = {self._name_of(item): item for item in items}
        for name, item in list(self.items.items()):
            if name not in found and item.metadata.name not in kept:
                self._gone(name)
        for item in items:
            self.put(item)
        for meta in unreadable:
            self.undecodable(meta, "")

    def put(self, item: _Item) -> None:
        name = self._name_of(item)
        known = self.items.get(name)
        if (
            known is not None
            and known.metadata.uid == item.metadata.uid
            and is_older(item.metadata, known.metadata)
        ):
            return
        self.unreadable.discard(item.metadata.name)
        self.items[name] = item
        self.touched.add(name)
        self._changed.set()

    def drop(self, item: _Item) -> None:
        known = self.items.get(self._name_of(item))
        if known is not None and known.metadata.uid == item.metadata.uid:
            self._gone(self._name_of(item))

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        del problem  # the reflector has logged it
        self.unreadable.add(meta.name)

    def _gone(self, name: str) -> None:
        self.items.pop(name, None)
        self.touched.add(name)
        self._changed.set()


class WatchedFences(WatchedObjects[NodeFence]):
    """Records by the node in their name. A record that cannot be read replaces its last readable version, so that no flow goes on."""

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        del problem  # the reflector has logged it
        node = meta.name.removeprefix(FENCE_PREFIX)
        self.put(NodeFence(metadata=meta, node=node, flow=FenceFlow(status="not readable")))


class _Mark(msgspec.Struct):
    """Measured part of a node's flow: `key` identifies the step and status; `base` seconds were recorded at `at`."""

    key: tuple[str, ...]
    base: float
    at: float


class FlowClock:
    """Measures flows by the monotonic clock. Recorded times go on from where a former controller stopped, never earlier.

    The clock of decisions, `now`, is the wall time at the start plus monotonic time since, so that a clock that jumps, or a
    machine that sleeps, makes nothing happen early. It may be wrong from the start: see `seen`.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall, self._zero = clock.now(), clock.monotonic()
        self._waits: dict[str, _Mark] = {}
        self._well: dict[str, tuple[str, float, float]] = {}
        self._seen: dict[tuple[str, str], tuple[tuple[object, ...], float]] = {}

    def now(self) -> datetime:
        return self._wall + timedelta(seconds=self._clock.monotonic() - self._zero)

    def times(self, name: str, fence: NodeFence | None, *, is_well: bool) -> FlowTimes:
        """Return the times of a node's flow. Call it at each look, since it also notes whether the node is well."""
        now = self._clock.monotonic()
        if fence is None:
            self.forget(name)
            return FlowTimes()
        flow = fence.flow
        key = (fence.metadata.uid, fence.step, flow.status, str(flow.since), str(flow.method))
        mark = self._waits.get(name)
        if mark is None or mark.key != key:
            mark = self._waits[name] = _Mark(key, flow.waited, now)
        quiet = 0.0
        if is_well:
            phase = f"{fence.metadata.uid}/{flow.since}"
            known = self._well.get(name)
            if known is None:
                known = self._well[name] = (phase, flow.quiet, now)
            quiet = known[1] + now - known[2]
        else:
            self._well.pop(name, None)
        return FlowTimes(waited=mark.base + now - mark.at, quiet=quiet)

    def seen(self, nodes: Iterable[NodeView]) -> dict[tuple[str, str], float]:
        """Return the seconds for which each (node, condition) of sick nodes has been as it is. Call it at each look."""
        now, before = self._clock.monotonic(), self._seen
        self._seen = {}
        for node in nodes:
            for condition in node.status.conditions:
                key = (node.name, condition.type)
                value = (node.metadata.uid, condition.status, condition.last_transition_time)
                known = before.get(key)
                self._seen[key] = known if known is not None and known[0] == value else (value, now)
        return {key: now - since for key, (_, since) in self._seen.items()}

    def forget(self, name: str) -> None:
        self._waits.pop(name, None)
        self._well.pop(name, None)


class ClusterWatch:
    """Follows nodes and records. `changed` is set when anything has changed."""

    def __init__(self, client: KubeClient, clock: Clock) -> None:
        self._client = client
        self.changed = asyncio.Event()
        self.nodes: WatchedObjects[NodeView] = WatchedObjects(lambda node: node.metadata.name, self.changed)
        self.fences: WatchedObjects[NodeFence] = WatchedFences(
            lambda fence: fence.metadata.name.removeprefix(FENCE_PREFIX), self.changed
        )
        self._reflectors: tuple[Reflector[NodeView], Reflector[NodeFence]] = (
            Reflector(client, NODES, NodeView, self.nodes, clock=clock),
            Reflector(client, NODE_FENCES, NodeFence, self.fences, clock=clock),
        )
        self.events = NodeEvents(self._noted)
        # Without events the view of the nodes is still complete, so this one is no reason to wait.
        self._events_reflector: Reflector[Event] = Reflector(
            client, EVENTS, Event, self.events, clock=clock, field_selector="involvedObject.kind=Node"
        )

    def _noted(self, node: str) -> None:
        self.nodes.touched.add(node)
        self.changed.set()

    @property
    def problem(self) -> str:
        """Reason why the view may be outdated; empty if it is current."""
        for reflector in self._reflectors:
            if not reflector.synced.is_set():
                return "nodes and records are not read yet"
            if reflector.problem:
                return f"the API server does not answer: {reflector.problem}"
        return ""

    async def read_node(self, name: str) -> NodeView:
        """Read a node that the watch may not have reported yet. Raises KubeletxError."""
        node = await self._client.get(NODES.path(name=name), NodeView)
        self.nodes.put(node)
        return node

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._events_reflector.run(), name="remedy events of nodes")
            for reflector in self._reflectors:
                group.create_task(reflector.run(), name="remedy watch")

    async def synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.synced.wait()
