"""The whole agent in one process: real rooms, store and files in a temporary directory, fake runtimes and time."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kubeletx.agent.assembly import assemble
from kubeletx.agent.config.tree import (
    AgentConfig,
    CgroupSettings,
    EndpointText,
    EvictionSettings,
    LogSettings,
    NodeSettings,
    RuntimeSettings,
    ServerSettings,
    SourceSettings,
)
from kubeletx.agent.host.readings import HostReadings
from kubeletx.agent.lifecycle import Assembly
from kubeletx.agent.parts.part import Part
from kubeletx.api import Endpoint, Host, Traits
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.plugins.candidates import LoadedPlugin
from kubeletx.plugins.loading import Plugins
from kubeletx.plugins.registrations import Registrations
from kubeletx.runtimes.endpoints.kinds import KindTable, RuntimeKind
from kubeletx.server.backend import AdminBackend
from kubeletx.testing import FakeClock, FakeRuntime
from kubeletx_testing.waiting import let_others_work

T = TypeVar("T")


def _type_of(name: str) -> str:
    return "vm" if name == "kvm" else "container"


class FileTrees(CgroupTrees):
    """A unified cgroup tree of plain files; the kernel does not fill its directories."""

    def __init__(self, root: Path) -> None:
        self.root = root
        root.mkdir()
        (root / "cgroup.controllers").write_text("cpu io memory pids\n")
        super().__init__(root)

    def create(self, path: str) -> None:
        (self.root / path).mkdir(parents=True, exist_ok=True)


class AgentModel:
    """An agent on fake runtimes.

    `runtimes` holds the fakes by name; their backends survive restarts of the agent.
    """

    def __init__(self, root: Path, names: tuple[str, ...] = ("one", "two")) -> None:
        self.root = root
        self.clock = FakeClock()
        self.runtimes: dict[str, FakeRuntime] = {}
        self.without: tuple[type, ...] = ()
        self.kinds = KindTable(
            [
                RuntimeKind(
                    name="fake",
                    factory=self._make,
                    workload_types=tuple(sorted({_type_of(name) for name in names})),
                    schemes=("fake",),
                    default_claim=True,
                    plugin="fake",
                )
            ]
        )
        self.config = AgentConfig(
            root_dir=root / "root",
            runtimes=RuntimeSettings(
                endpoints=tuple(
                    EndpointText(text=f"{_type_of(n)}:{n}:fake://{n}", origin="flag") for n in names
                )
            ),
            sources=SourceSettings(pod_manifest_path=root / "manifests"),
            node=NodeSettings(hostname_override="node"),
            logs=LogSettings(pod_logs_dir=root / "logs"),
            cgroups=CgroupSettings(per_qos=False),
            eviction=EvictionSettings(hard={}),  # the machine that tests run on may be short of anything
            server=ServerSettings(healthz_port=0),
        )
        (root / "manifests").mkdir(exist_ok=True)
        self.traits: Traits | None = None
        """Traits that the runtimes declare; None: those of the fake."""
        self.parts: Assembly
        self.more_parts: tuple[Part, ...] = ()
        """Parts in addition to those that the agent builds; `Assembly.run` runs them."""
        self.is_applied_awaited = True
        """Whether a life begins for a test once the source of applied pods is synced."""
        self.registrations = Registrations()
        """What plugins register beside the runtimes; filled before a start."""
        self.host = HostReadings(trees=CgroupTrees())
        """The machine as the agent reads it at its start."""

    @property
    def plugins(self) -> Plugins:
        """The plugin of the runtimes, and those of the registrations."""
        loaded = [LoadedPlugin(name="fake", distribution="d", version="1", state="ready", kinds=("fake",))]
        for name in dict.fromkeys(one.plugin for one in self.registrations):
            own = tuple(one for one in self.registrations if one.plugin == name)
            loaded.append(
                LoadedPlugin(name=name, distribution="d", version="1", state="ready", registrations=own)
            )
        return Plugins(loaded=tuple(loaded), kinds=self.kinds, registrations=self.registrations)

    def _make(self, endpoint: Endpoint, _settings: Any, _host: Host) -> FakeRuntime:
        old = self.runtimes.get(endpoint.name)
        runtime = FakeRuntime(
            endpoint.name,
            clock=self.clock,
            backend=old.backend if old else None,
            without=self.without,
            traits=self.traits,
        )
        runtime.backend.add_image("busybox")
        self.runtimes[endpoint.name] = runtime
        return runtime

    def configure(self, section: str, **fields: Any) -> None:
        """Change settings before a start."""
        old = getattr(self.config, section)
        changed = {section: msgspec.structs.replace(old, **fields)}
        self.config = msgspec.structs.replace(self.config, **changed)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[AdminBackend]:
        """One life of the agent, from its start to its end in order."""
        async with assemble(self.config, plugins=self.plugins, clock=self.clock, host=self.host) as made:
            parts = msgspec.structs.replace(made, parts=(*made.parts, *self.more_parts))
            self.parts = parts
            parts.pods.services.exit_seconds = 0.3  # real time, which calls that hang use up
            task = asyncio.create_task(parts.run())
            try:
                await self.until(
                    lambda: (
                        self.config.socket_path.exists()
                        and (not self.is_applied_awaited or "applied" in parts.manager.synced_sources)
                    )
                )
                yield parts.backend
                assert not task.done(), task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], Any], seconds: float = 200.0) -> None:
        """Let fake time pass, and threads work, until `condition` holds."""
        async with asyncio.timeout(60):
            end = self.clock.monotonic() + seconds
            while not condition():
                assert self.clock.monotonic() < end, "it did not happen in time"
                await let_others_work()
                await self.clock.run_for(0.05)

    async def done(self, work: Awaitable[T]) -> T:
        """The result of something that waits for fake time."""
        task = asyncio.ensure_future(work)
        await self.until(task.done)
        return task.result()

    async def apply(self, pod: Pod) -> Pod:
        """Apply the pod and wait until it runs."""
        made = (await self.parts.backend.pods.apply_pod(pod)).pod
        await self.until(lambda: self.phase(pod.name) == "Running")
        return made

    def counted(self) -> tuple[int, int]:
        """The CPU in millicores and the memory in MiB that admission counts for all pods."""
        amounts = self.parts.pods.services.admission.occupancy.amounts
        return amounts["cpu"], amounts["memory"] >> 20

    async def metric(self, name: str) -> dict[str, Any]:
        """The present values of one metric, by its label values joined by commas."""
        metrics = await self.parts.backend.about.metrics()
        found = next(one for one in metrics if one.name == name)
        return {",".join(map(str, labels)): value for labels, value in found.samples()}

    async def durations(self, name: str) -> dict[str, int]:
        """How many durations one histogram has, as `metric`."""
        return {labels: sum(found.counts) for labels, found in (await self.metric(name)).items()}

    def phase(self, name: str) -> str | None:
        """The phase last published of the living pod of this name."""
        worker = self.parts.manager.find("default", name)
        status = worker.facts.previous_status if worker is not None else None
        return status.phase if status is not None else None

    def alive(self, runtime: str = "one") -> list[str]:
        """Names of the pods that have a unit alive on the runtime."""
        backend = self.runtimes[runtime].backend
        return sorted(
            backend.sandboxes[unit.summary.sandbox_id].summary.name
            for unit in backend.units.values()
            if unit.summary.state.is_alive
        )


def a_pod(name: str = "web", *, runtime: str = "", image: str = "busybox", **spec: Any) -> Pod:
    """A pod as a manifest has it."""
    spec.setdefault("containers", (Container(name="main", image=image),))
    return Pod(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=PodSpec(runtime_service_name=runtime or None, **spec),
    )
