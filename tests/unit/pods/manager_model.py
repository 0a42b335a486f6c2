"""A pod manager with all its collaborators over fake runtimes: real steps, real files, a fake clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import MetaData

from kubeletx.api import ClusterObjects, Endpoint, Host, IdMapping, PodUid, RuntimeName
from kubeletx.kube.manifests.defaults import set_defaults
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec
from kubeletx.linux.mounts import MountPoint
from kubeletx.pods.admission import AdmissionNode, NodeAdmission
from kubeletx.pods.counters import Counters
from kubeletx.pods.dependencies import Evacuation, PodDependencies
from kubeletx.pods.executor import PodExecutor
from kubeletx.pods.logs.directories import PodDirectories
from kubeletx.pods.logs.pod_files import PodFiles
from kubeletx.pods.manager import PodManager
from kubeletx.pods.model.node_context import NodeContext
from kubeletx.pods.model.sources import BUILT_IN
from kubeletx.pods.probes.all_probes import UnitProbes
from kubeletx.pods.probes.lifecycle_hooks import UnitHooks
from kubeletx.pods.records import POD_TABLES, PodRecords
from kubeletx.pods.specs.extras import ExtrasProvider
from kubeletx.pods.status.board import StatusBoard
from kubeletx.pods.status.build import NodeIdentity
from kubeletx.pods.unit_images import UnitImages
from kubeletx.pods.worker import PodWorker
from kubeletx.runtimes.binding.bindings import METADATA as RUNTIME_TABLES
from kubeletx.runtimes.binding.bindings import Bindings
from kubeletx.runtimes.binding.tombstones import Tombstones
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind
from kubeletx.runtimes.fleet import FleetConfig
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.runtimes.host.host import HostParts
from kubeletx.runtimes.images.records import METADATA as IMAGE_TABLES
from kubeletx.runtimes.images.records import ImageRecords
from kubeletx.runtimes.images.settings import PullSettings
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.store import Store
from kubeletx.testing import FakeClock, FakeEventSink, FakeRuntime
from kubeletx.testing.fake_runtime import ExecHandler
from kubeletx.volumes import VolumePreparer
from kubeletx_testing.waiting import let_others_work

T = TypeVar("T")
PATIENCE_SECONDS = 60  # real time: for a test that hangs, not for one on a slow machine
HURRIED = Limits(probe_seconds=0.05, query_seconds=0.5, request_seconds=0.5, open_seconds=0.2)
"""Real deadlines, for a test in which a call of the runtime hangs until its deadline."""


def a_pod(name: str = "web", uid: str = "", *, runtime: str = "", containers: int = 1, **spec: Any) -> Pod:
    """A pod with defaults, on `runtime` if it is named."""
    spec.setdefault("containers", tuple(Container(name=f"c{n}", image="busybox") for n in range(containers)))
    return set_defaults(
        Pod(
            metadata=ObjectMeta(name=name, namespace="default", uid=PodUid(uid or f"uid-{name}")),
            spec=PodSpec(runtime_service_name=runtime or None, **spec),
        )
    )


class CountingStore(Store):
    """A store that knows how many of its calls are on the way. `writes_left`: later ones are lost; None: no limit."""

    waiting = 0
    writes_left: int | None = None
    is_dead = False
    """True once a write was lost: the file is as after a crash before this write."""
    lost_writes: tuple[asyncio.Future[None], ...] = ()

    async def close(self, timeout_seconds: float = 5.0) -> None:
        for lost in self.lost_writes:
            lost.cancel()
        await super().close(timeout_seconds)

    def write_later(self, work: Callable[[Any], Any]) -> None:
        if not self.is_dead:
            super().write_later(work)

    async def _submit(self, work: Callable[[Any], T], *, is_read: bool) -> T:
        if not is_read and self.writes_left is not None:
            self.is_dead = self.is_dead or self.writes_left == 0
            if self.is_dead:
                lost = asyncio.get_running_loop().create_future()
                self.lost_writes += (lost,)
                await lost
            self.writes_left -= 1
        self.waiting += 1
        try:
            return await super()._submit(work, is_read=is_read)
        finally:
            self.waiting -= 1


class NoMounts:
    """A mounter for a place where nothing is ever mounted."""

    def mount(self, source: str, target: Path, *, fstype: str = "", flags: int = 0, data: str = "") -> None:
        raise AssertionError("this pod mounts nothing")

    def mount_by_helper(self, source: str, target: Path, *, fstype: str, options: Sequence[str] = ()) -> None:
        raise AssertionError("this pod mounts nothing")

    def unmount(self, target: Path) -> None:
        raise AssertionError("nothing is mounted")

    def mounts(self, below: Path | None = None) -> tuple[MountPoint, ...]:
        return ()


class NoCredentials:
    """No registry asks for any."""

    def is_personal(self, image: str) -> bool:
        return False

    async def lookup(self, image: str, puller: object = None) -> tuple[()]:
        return ()

    async def find_account(self, puller: object) -> None:
        return None


class Node:
    """One node; `runtimes` holds the fakes by name and survives restarts of the agent."""

    def __init__(self, root: Path, *names: str, workload_type: str = "container") -> None:
        self.root = root
        self.clock = FakeClock()
        self.sink = FakeEventSink()
        self.runtimes: dict[str, FakeRuntime] = {}
        kind = RuntimeKind(
            name="fake",
            factory=self._make,
            workload_types=("container", "vm"),
            schemes=("fake",),
            default_claim=True,
        )
        self.kinds = KindTable([kind])
        self.endpoints = tuple(
            Endpoint(name=RuntimeName(n), workload_type=workload_type, url=f"fake://{n}", kind="fake")
            for n in names or ("one",)
        )
        self.manager: PodManager
        self.registry: RuntimeRegistry
        self.services: PodExecutor
        self.tombstones: Tombstones
        self.cluster: dict[str, ClusterObjects] = {}
        """Where pull secrets are, by source."""
        self.extras: dict[str, ExtrasProvider] = {}
        self.evacuations: list[Evacuation] = []
        self.sources = BUILT_IN
        self.classes: dict[str, str] = {}
        """Handlers of runtime classes. All runtimes report the handlers that are not the name of a runtime."""
        self.cgroups: Any = None
        """Makes cgroups of pods in the next life of the agent; None: nothing does."""
        self.without: tuple[type, ...] = ()
        """Capabilities that runtimes in the next life of the agent do not have."""
        self.limits = Limits()
        self.exec_handler: ExecHandler | None = None
        """What runs commands in units; None: a few commands are known."""
        self.thaw_seconds = 5.0
        self.exit_seconds = 3.0
        self.more_tables: tuple[MetaData, ...] = ()
        self._store: CountingStore | None = None
        self._file_work = 0

    def _make(self, endpoint: Endpoint, _settings: Any, _host: Host) -> FakeRuntime:
        old = self.runtimes.get(endpoint.name)
        runtime = FakeRuntime(
            endpoint.name,
            clock=self.clock,
            backend=old.backend if old else None,
            without=self.without,
            exec_handler=self.exec_handler,
        )
        runtime.backend.add_image("busybox")
        runtime.handlers = tuple(self.classes.values())
        self.runtimes[endpoint.name] = runtime
        return runtime

    async def blocking(self, function: Callable[..., T], /, *args: Any) -> T:
        """File work, on a thread as in the agent."""
        self._file_work += 1
        try:
            return await asyncio.to_thread(function, *args)
        finally:
            self._file_work -= 1

    @contextlib.asynccontextmanager
    async def running(
        self, *, keeps_orphans: bool = False, listed: tuple[str, ...] = (), **admission: Any
    ) -> AsyncIterator[PodManager]:
        """One life of the agent. `listed`: the runtimes that answer at its start; empty: all."""
        tables = [RUNTIME_TABLES, IMAGE_TABLES, POD_TABLES, *self.more_tables]
        self._store = store = await CountingStore.open(self.root / "db", tables)
        bindings, self.tombstones = Bindings(store), Tombstones(store)
        await bindings.load()
        await self.tombstones.load()
        self.registry = RuntimeRegistry(
            kinds=self.kinds,
            plan=FleetConfig(endpoints=self.endpoints, class_map=self.classes, limits=self.limits),
            parts=HostParts(
                agent_id="agent", node_name="n", root=self.root, clock=self.clock, events=self.sink
            ),
            bindings=bindings,
            tombstones=self.tombstones,
        )
        assert self.registry.configure() == ()
        self.services = self._services(store, AdmissionNode(name="n", **admission))
        self.manager = PodManager(self.services, has_lost_history=lambda: keeps_orphans)
        self.registry.subscribe(self.manager)
        tasks = [asyncio.create_task(self.registry.run())]
        try:
            awaited = [h for h in self.registry.handles() if not listed or h.name in listed]
            await self.until(lambda: all(h.is_listed for h in awaited))
            await self.manager.recover()
            tasks.append(asyncio.create_task(self.manager.run()))
            yield self.manager
            assert not any(task.done() for task in tasks)
        finally:
            for task in reversed(tasks):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await self._probes.close()
            await store.close()

    def _services(self, store: Store, node: AdmissionNode) -> PodExecutor:
        context = NodeContext(
            agent_id="agent",
            node_name="n",
            root_dir=self.root,
            pod_logs_dir=self.root / "logs",
            resolv_conf=None,
            hosts_file=Path("/dev/null"),
        )
        directories = PodDirectories(context)
        volumes = VolumePreparer(
            root_dir=self.root, blocking=self.blocking, fields=context.fields(), mounter=NoMounts()
        )
        stores = ImageStores(
            self.registry,
            clock=self.clock,
            records=ImageRecords(store),
            credentials=NoCredentials(),
            settings=PullSettings(),
        )
        self._probes = UnitProbes(self.registry, self.clock, self.sink)
        counters = Counters()
        return PodExecutor(
            PodDependencies(
                registry=self.registry,
                node=context,
                identity=NodeIdentity(name="n"),
                volumes=volumes,
                admission=NodeAdmission(node),
                classes=self.classes,
                images=UnitImages(stores, self.clock, counters, self.cluster),
                probes=self._probes,
                hooks=UnitHooks(self.registry, self.clock),
                directories=PodFiles(context, directories, volumes, self.blocking),
                cgroups=self.cgroups,
                sources=self.sources,
                cluster=self.cluster,
                extras=self.extras,
                evacuations=self.evacuations,
                user_mappings=_no_mappings,
                on_unit_started=lambda: None,
                records=PodRecords(store),
                board=StatusBoard(),
                counters=counters,
                events=self.sink,
                clock=self.clock,
                thaw_seconds=self.thaw_seconds,
                exit_seconds=self.exit_seconds,
            )
        )

    # --- what a test does and sees ---

    async def until(self, condition: Callable[[], Any], seconds: float = 120.0) -> None:
        """Let fake time pass until `condition` holds; it does not run ahead of a thread that works."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            end = self.clock.monotonic() + seconds
            while not condition():
                assert self.clock.monotonic() < end, "it did not happen in time"
                await self.clock.run_for(0.001)
                if self.threads_work:
                    await let_others_work()
                else:
                    await self.clock.run_for(max(0.05, (self.clock.next_wake_seconds or 0.0) - 0.05))

    @property
    def store(self) -> CountingStore:
        """The state database of this life of the agent."""
        assert self._store is not None
        return self._store

    @property
    def threads_work(self) -> bool:
        return bool(self._file_work or (self._store is not None and self._store.waiting))

    async def start(self, pod: Pod, source: str = "file") -> PodWorker:
        """Hand the pod over and wait until it runs."""
        self.manager.update(source, pod)
        await self.until(lambda: self.phase(pod.uid) == "Running")
        return self.manager.workers[pod.uid]

    def phase(self, uid: str) -> str | None:
        """The phase last published."""
        status = self.services.board.statuses.get(PodUid(uid))
        return status.phase if status is not None else None

    def alive(self, runtime: str = "one") -> list[str]:
        """pod/container of everything alive on the runtime."""
        backend = self.runtimes[runtime].backend
        return sorted(
            f"{backend.sandboxes[unit.summary.sandbox_id].summary.name}/{unit.summary.name}"
            for unit in backend.units.values()
            if unit.summary.state.is_alive
        )


async def _no_mappings(_pod: Pod) -> tuple[IdMapping, ...] | None:
    return None
