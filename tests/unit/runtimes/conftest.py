"""Shared by the tests of `kubeletx.runtimes`: a registry over fake runtimes, and short ways to pods."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import (
    Endpoint,
    Host,
    PodUid,
    RuntimeEvent,
    RuntimeName,
    SandboxSpec,
    Traits,
    UnitSpec,
    names,
)
from kubeletx.runtimes.binding.bindings import METADATA, Bindings
from kubeletx.runtimes.binding.tombstones import Tombstones
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind
from kubeletx.runtimes.fleet import FleetConfig
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.runtimes.host.host import HostParts
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.store import Store
from kubeletx.testing import FakeClock, FakeEventSink, FakeRuntime, sandbox_spec, unit_spec
from kubeletx_testing.waiting import let_others_work

AGENT = "agent-1"
FAST = Limits(probe_seconds=0.05, query_seconds=0.2, request_seconds=0.2, open_seconds=0.2)
PATIENT = Limits(probe_seconds=60, query_seconds=60, request_seconds=60, open_seconds=60)
"""For calls that fail: the log draws a traceback meanwhile, which takes longer than `FAST` on a busy machine."""


class Listener:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.runtimes: list[str] = []
        self.pods: list[tuple[str, str, RuntimeEvent | None]] = []

    def runtime_changed(self, name: RuntimeName) -> None:
        self.runtimes.append(name)

    def pod_changed(self, name: RuntimeName, uid: PodUid, event: RuntimeEvent | None) -> None:
        self.pods.append((name, uid, event))


def labels(runtime: str, uid: str, agent: str = AGENT) -> dict[str, str]:
    return {names.AGENT_ID: agent, names.RUNTIME_NAME: runtime, names.POD_UID: uid}


def sandbox_of(runtime: str, pod: str, attempt: int = 0, **more: Any) -> SandboxSpec:
    return sandbox_spec(pod, attempt=attempt, labels=labels(runtime, f"uid-{pod}"), **more)


def unit_of(runtime: str, pod: str, name: str = "main", attempt: int = 0) -> UnitSpec:
    return unit_spec(name, attempt=attempt, labels=labels(runtime, f"uid-{pod}"))


class Bench:
    """One handle over a FakeRuntime, running in a task."""

    def __init__(
        self, runtime: FakeRuntime, clock: FakeClock, limits: Limits = FAST, *, plugin: str = ""
    ) -> None:
        self.clock = clock
        self.runtime = runtime
        self.runtime.backend.add_image("busybox")
        self.listener = Listener()
        self.sink = FakeEventSink()
        self.handle = RuntimeHandle(
            endpoint=Endpoint(
                name=RuntimeName(runtime.name), workload_type="container", url="fake://", kind="fake"
            ),
            runtime=runtime,
            agent_id=AGENT,
            clock=clock,
            events=self.sink,
            listener=self.listener,
            limits=limits,
            plugin=plugin,
        )

    async def start_pod(self, pod: str = "a", *, note: bool = False) -> tuple[Any, Any]:
        spec = sandbox_of(self.handle.name, pod)
        sandbox_id = await self.handle.create_sandbox(spec)
        unit_id = await self.handle.create_unit(sandbox_id, unit_of(self.handle.name, pod), spec)
        await self.handle.start_unit(unit_id)
        if note:
            self.handle.note_sandbox(await self.handle.sandbox_status(sandbox_id))
            self.handle.note_unit(await self.handle.unit_status(unit_id))
        return sandbox_id, unit_id

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
        """Let fake time pass until `condition` holds."""
        async with asyncio.timeout(60):
            end = self.clock.monotonic() + seconds
            while not condition():
                assert self.clock.monotonic() < end, "it did not happen in time"
                await let_others_work()
                await self.clock.run_for(0.1)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Bench]:
        task = asyncio.create_task(self.handle.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def bench(clock: FakeClock) -> AsyncIterator[Bench]:
    async with Bench(FakeRuntime("one", clock=clock), clock).running() as bench:
        await bench.until(lambda: bench.handle.is_listed)
        await bench.clock.run_for(3)
        yield bench


class World:
    """A registry over fake runtimes; `runtimes` holds the fakes by name and survives restarts."""

    def __init__(self, root: Path, clock: FakeClock) -> None:
        self.root = root
        self.clock = clock
        self.runtimes: dict[str, FakeRuntime] = {}
        self.traits: dict[str, Traits] = {}
        self.without: dict[str, tuple[type, ...]] = {}
        self.listener = Listener()
        self.sink = FakeEventSink()
        self.kinds = KindTable([self.kind("fake", "container"), self.kind("fake-vm", "vm")])
        self.endpoints: tuple[Endpoint, ...] = ()
        self.class_map: dict[str, str] = {}
        self.plan_more: dict[str, Any] = {}

    def kind(self, kind: str, workload_type: str) -> RuntimeKind:
        return RuntimeKind(
            name=kind,
            factory=self.make,
            workload_types=(workload_type,),
            schemes=("fake",),
            default_claim=True,
        )

    def make(self, endpoint: Endpoint, _settings: Any, _host: Host) -> FakeRuntime:
        old = self.runtimes.get(endpoint.name)
        runtime = FakeRuntime(
            endpoint.name,
            clock=self.clock,
            backend=old.backend if old else None,
            traits=self.traits.get(endpoint.name),
            without=self.without.get(endpoint.name, ()),
        )
        runtime.backend.add_image("busybox")
        self.runtimes[endpoint.name] = runtime
        return runtime

    def endpoint(self, name: str, workload_type: str = "container") -> Endpoint:
        kind = "fake" if workload_type == "container" else "fake-vm"
        return Endpoint(name=RuntimeName(name), workload_type=workload_type, url=f"fake://{name}", kind=kind)

    @contextlib.asynccontextmanager
    async def running(self, *, wait: bool = True) -> AsyncIterator[RuntimeRegistry]:
        """A registry that runs; `wait`: until every runtime has listed its pods."""
        store = await Store.open(self.root / "state.db", [METADATA])
        try:
            async with self._registry(store, wait) as registry:
                yield registry
        finally:
            await store.close()

    @contextlib.asynccontextmanager
    async def _registry(self, store: Store, wait: bool) -> AsyncIterator[RuntimeRegistry]:
        bindings, stones = Bindings(store), Tombstones(store)
        await bindings.load()
        await stones.load()
        registry = RuntimeRegistry(
            kinds=self.kinds,
            plan=FleetConfig(
                endpoints=self.endpoints, class_map=self.class_map, limits=FAST, **self.plan_more
            ),
            parts=HostParts(
                agent_id=AGENT, node_name="n", root=self.root, clock=self.clock, events=self.sink
            ),
            bindings=bindings,
            tombstones=stones,
        )
        self.errors = registry.configure()
        registry.subscribe(self.listener)
        task = asyncio.create_task(registry.run())
        try:
            await self.until(lambda: not wait or all(h.is_listed for h in registry.handles()) or task.done())
            yield registry
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], Any], seconds: float = 60.0) -> None:
        async with asyncio.timeout(60):
            end = self.clock.monotonic() + seconds
            while not condition():
                assert self.clock.monotonic() < end, "it did not happen in time"
                await let_others_work()
                await self.clock.run_for(0.1)


@pytest.fixture
def world(tmp_path: Path, clock: FakeClock) -> World:
    return World(tmp_path, clock)
