"""A controller in the test's process: the cluster is in memory, time is simulated, and the methods are scripted."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Callable, Iterable
from types import SimpleNamespace
from typing import Any, cast

from msgspec.structs import replace

from kubeletx.api import AlreadyExists, Conflict, NotFound
from kubeletx.kube.client import KubeClient
from kubeletx.kube.types.node import NodeCondition
from kubeletx.remedy.cluster import WatchedFences, WatchedObjects
from kubeletx.remedy.controller import RemedyController
from kubeletx.remedy.fences import FenceRecords
from kubeletx.remedy.model import (
    FenceProof,
    MethodResult,
    NodeFence,
    NodeView,
    RemedyOutcome,
    RemedySettings,
    RemedyTask,
)
from kubeletx.remedy.release import ReleaseResult
from kubeletx.remedy.safety.node_events import NodeEvents
from kubeletx.testing import FakeClock
from tests.unit.remedy.trial import Trial, new_node

SETTINGS = RemedySettings(power_wait=20, settle_time=60, quiet_time=10, retries=1, retry_wait=10, restarts=0)


class Desk:
    """Nodes of the names given, all ready, and one controller at a time. `calls`: methods that ran, as ``node/method``, with ``?`` for a repeat.

    `scripts`: coroutine functions by method that carry it out; others succeed. `looks`: number of times the controller has asked for the configuration.
    `nodes`: nodes on the server that the watch has not reported yet. `node_faults`: raised by the next reads of a node.
    """

    def __init__(
        self, names: Iterable[str] = ("n1", "n2", "n3", "n4", "n5"), settings: RemedySettings = SETTINGS
    ) -> None:
        self.clock = FakeClock()
        self.api = FenceApi()
        self.nodes: dict[str, NodeView] = {}
        self.node_faults: list[Exception] = []
        self.configured = Trial(names, settings=settings).configured
        self.calls: list[str] = []
        self.scripts: dict[str, Callable[[RemedyTask], Any]] = {}
        self.looks = 0
        self.leads = True
        self.watch = self.new_watch()
        for name in names:
            self.watch.nodes.put(new_node(name, self.clock.now()))
        self.controller = self.new_controller()

    def new_watch(self) -> Any:
        changed = asyncio.Event()
        nodes: WatchedObjects[NodeView] = WatchedObjects(lambda node: node.name, changed)
        fences = WatchedFences(lambda fence: fence.metadata.name.removeprefix("node-fence-"), changed)
        self.api.sinks.append(fences)
        return SimpleNamespace(
            events=NodeEvents(nodes.touched.add),
            changed=changed,
            nodes=nodes,
            fences=fences,
            problem="",
            read_node=self._read_node,
        )

    def new_controller(self) -> RemedyController:
        """Return another controller of the same cluster, as another process would be."""
        records = FenceRecords(cast("KubeClient", self.api), self.clock)
        release = SimpleNamespace(release=self._release)
        leases = SimpleNamespace(others=dict, take=_always, drop=_always)
        surroundings = SimpleNamespace(doubts=(), planned={}, is_due=False)
        kinds: dict[str, Any] = dict.fromkeys(("agent", "builtin"), SimpleNamespace(run=self._act))
        return RemedyController(
            self.watch,
            records,
            kinds,
            cast("Any", release),
            cast("Any", leases),
            cast("Any", surroundings),
            clock=self.clock,
            configured=self._look,
            may_act=lambda: self.leads,
        )

    @contextlib.asynccontextmanager
    async def leading(self, controller: RemedyController | None = None) -> AsyncIterator[None]:
        """Run a controller within the body; afterwards it is cancelled, as when it has lost its lock."""
        task = asyncio.create_task((controller or self.controller).run(), name="controller")
        try:
            yield
            assert not task.done(), task.exception()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def set(
        self, name: str, status: str, condition: str = "Ready", *, is_seen: bool = True, **fields: Any
    ) -> None:
        """Give the node's condition another status now. `is_seen`: the watch reports it."""
        node: NodeView = self.watch.nodes.items[name]
        fields.setdefault("last_transition_time", self.clock.now())
        changed = NodeCondition(type=condition, status=status, **fields)
        others = [item for item in node.status.conditions if item.type != condition]
        node = replace(node, status=replace(node.status, conditions=(changed, *others)))
        if is_seen:
            self.watch.nodes.put(node)
        else:
            self.nodes[name] = node

    def annotate(self, name: str, key: str, value: str) -> None:
        node: NodeView = self.watch.nodes.items[name]
        meta = replace(node.metadata, annotations={**node.metadata.annotations, key: value})
        self.watch.nodes.put(replace(node, metadata=meta))

    def fence(self, name: str = "n1") -> NodeFence:
        return self.api.fences[f"node-fence-{name}"]

    def state(self, name: str = "n1") -> str:
        return f"{self.fence(name).step}/{self.fence(name).flow.status}"

    def _look(self) -> Any:
        self.looks += 1
        return self.configured

    async def _read_node(self, name: str) -> NodeView:
        if self.node_faults:
            raise self.node_faults.pop(0)
        if name in self.nodes:
            self.watch.nodes.put(self.nodes.pop(name))
        node: NodeView = self.watch.nodes.items[name]
        return node

    async def _act(self, task: RemedyTask) -> RemedyOutcome:
        name = task.method.name
        self.calls.append(f"{task.node.name}/{name}{'?' if task.is_repeat else ''}")
        if name in self.scripts:
            outcome: RemedyOutcome = await self.scripts[name](task)
            return outcome
        proofs = {"pdu-off": (FenceProof.POWER,)}.get(name, ())
        return RemedyOutcome(result=MethodResult.DONE, proofs=proofs)

    async def _release(self, fence: NodeFence) -> ReleaseResult:
        self.calls.append(f"{fence.node}/release")
        return ReleaseResult()


class FenceApi:
    """The API server's NodeFences. Writes check the version.

    `faults`: raised by the next writes, after they were carried out. `stored`: called after each write that succeeds.
    """

    def __init__(self) -> None:
        self.fences: dict[str, NodeFence] = {}
        self.sinks: list[WatchedFences] = []
        self.faults: list[Exception] = []
        self.stored: Callable[[NodeFence], object] = lambda _fence: None
        self._numbers = itertools.count(1)

    def edit(self, fence: NodeFence) -> NodeFence:
        """Store the record whatever its version, as ``kubectl replace --force`` does."""
        number = str(next(self._numbers))
        fence = replace(fence, metadata=replace(fence.metadata, resource_version=number))
        self.fences[fence.metadata.name] = fence
        for sink in self.sinks:
            sink.put(fence)
        return fence

    async def create(self, _path: str, fence: NodeFence, _type: Any) -> NodeFence:
        if fence.metadata.name in self.fences:
            raise AlreadyExists(fence.metadata.name)
        meta = replace(fence.metadata, uid=f"uid of record {next(self._numbers)}")
        return self._stored(replace(fence, metadata=meta))

    async def replace(self, path: str, fence: NodeFence, _type: Any) -> NodeFence:
        self._check(path, fence.metadata.resource_version)
        return self._stored(fence)

    async def patch(self, path: str, body: dict[str, Any], _type: Any, **_: Any) -> NodeFence:
        known = self._check(path.removesuffix("/status"), body["metadata"]["resourceVersion"])
        return self._stored(replace(known, status=body["status"]))

    async def get(self, path: str, _type: Any) -> NodeFence:
        return self._check(path, "")

    async def delete(self, path: str, **_: Any) -> None:
        fence = self._check(path, "")
        del self.fences[fence.metadata.name]
        for sink in self.sinks:
            sink.drop(fence)

    def _check(self, path: str, version: str) -> NodeFence:
        name = path.rsplit("/", 1)[-1]
        if name not in self.fences:
            raise NotFound(name)
        known = self.fences[name]
        if version not in ("", known.metadata.resource_version):
            raise Conflict(f"{name} has version {known.metadata.resource_version}")
        return known

    def _stored(self, fence: NodeFence) -> NodeFence:
        stored = self.edit(fence)
        if self.faults:
            raise self.faults.pop(0)
        self.stored(stored)
        return stored


async def _always(*_: Any) -> bool:
    return True
