"""`FakeAdminBackend`: a fake of the agent for tests of the admin server and its clients.

It keeps pods, runtimes, images and events as plain values that a test sets directly. It answers as the real
agent would, and adds calls that change something to `calls`. Watches yield the changes that `put`, `drop` and
`record` make.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeletx.api import AlreadyExists, Conflict, NotFound, Session, StreamRequest, StreamUrl
from kubeletx.api.counting import Metric, gauge
from kubeletx.kube.start_timeline import PodAction, PodStart
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.event import Event
from kubeletx.kube.types.node import Node
from kubeletx.server.backend import AdminBackend
from kubeletx.server.views import (
    ApplyResult,
    ConfigValue,
    DeleteOptions,
    HealthView,
    ImageListing,
    ImageView,
    LogOptions,
    MeasuredUsage,
    PanelContent,
    PanelView,
    PartHealth,
    PluginReload,
    PluginView,
    PodChange,
    PodHistory,
    PodTarget,
    Progress,
    PruneResult,
    PullUpdate,
    RuntimeDetail,
    RuntimeView,
    UsageHistory,
    UsageView,
    VersionView,
    VolumeView,
)

from .fake_machines import FakeMachines
from .fake_objects import FakeObjects
from .fake_sessions import FakeSessions
from .fake_standby import FakeStandby

STARTED_AT = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


class FakeAdminBackend:
    """Implements the protocols of `kubeletx.server.backend` in memory. Pass `parts` to the server under test."""

    def __init__(self) -> None:
        self.pods: dict[tuple[str, str], Pod] = {}
        self.runtimes: dict[str, RuntimeView] = {}
        self.details: dict[str, RuntimeDetail] = {}
        self.images: tuple[ImageView, ...] = ()
        self.missing: tuple[str, ...] = ()
        self.image_listings: tuple[ImageListing, ...] = ()
        self.events: list[Event] = []
        self.node = Node()
        self.logs: dict[str, list[bytes | Exception]] = {}
        """Pieces of containers' logs by container; reading raises an exception among them."""
        self.sessions: list[Session | StreamUrl | Exception] = []
        """Results of the next streams."""
        self.errors: list[Exception] = []
        """Raised by the next calls of `get_node` and `awake`."""
        self.may_cordon = asyncio.Event()
        self.may_cordon.set()
        self.usage_view = UsageView(node_name="node-1", node=MeasuredUsage())
        self.health_view = HealthView(parts=(PartHealth(name="syncloop", ok=True),))
        self.agent_metrics = [gauge("kubelet_node_name", "Name of the node.", {"node-1": 1}, "node")]
        self.python = ""
        self.plugin_views: tuple[PluginView, ...] = ()
        self.plugin_reload = PluginReload()
        self.panels: dict[str, PanelContent] = {}
        self.volume_views: tuple[VolumeView, ...] = ()
        self.config_values: tuple[ConfigValue, ...] = ()
        self.calls: list[tuple[Any, ...]] = []
        self.fornaxcore: msgspec.Struct | None = None
        self.kept_awake: list[str] = []
        self.delete_takes_effect = True
        self.histories: dict[str, tuple[PodAction, ...]] = {}
        self.start: PodStart | None = None
        self.history = UsageHistory(next=0, interval_seconds=10.0)
        self.machines = FakeMachines(self.calls)
        self.standby = FakeStandby(self.calls)
        self.objects = FakeObjects()
        self.fake_sessions = FakeSessions(self.calls)
        self._watchers: set[asyncio.Queue[PodChange]] = set()
        self._event_watchers: set[asyncio.Queue[Event]] = set()

    @property
    def parts(self) -> AdminBackend:
        """An `AdminBackend` that consists of this fake, its `machines`, its `standby` and its `fake_sessions`."""
        return AdminBackend(
            about=self,
            pods=self,
            objects=self.objects,
            machines=self.machines,
            standby=self.standby,
            node=self,
            drain=self,
            runtimes=self,
            images=self,
            volumes=self,
            sessions=self.fake_sessions,
            fornaxcore=self._fornaxcore,
            edge=self._edge,
        )

    def _edge(self) -> msgspec.Struct:
        raise NotFound("the agent has no guardian; start it with --health-run-dir")

    def cluster_node(self) -> Node:
        """Raise NotFound: the fake is in no cluster."""
        raise NotFound("node node-1 is in no cluster")

    def _fornaxcore(self) -> msgspec.Struct:
        if self.fornaxcore is None:
            raise NotFound("the agent has no FornaxCores; start it with --fornaxcore-url")
        return self.fornaxcore

    # --- what tests do ---

    def put(self, pod: Pod) -> None:
        """Add or replace the pod; watches of pods yield the change."""
        key = (pod.namespace, pod.name)
        kind = "MODIFIED" if key in self.pods else "ADDED"
        self.pods[key] = pod
        self._tell(PodChange(type=kind, object=pod))

    def drop(self, namespace: str, name: str) -> None:
        """Remove the pod; watches of pods yield its removal."""
        self._tell(PodChange(type="DELETED", object=self.pods.pop((namespace, name))))

    def record(self, event: Event) -> None:
        """Add an event to `events`; watches of events yield it."""
        self.events.append(event)
        for queue in self._event_watchers:
            queue.put_nowait(event)

    def _tell(self, change: PodChange) -> None:
        for queue in self._watchers:
            queue.put_nowait(change)

    @property
    def watchers(self) -> int:
        """Number of open pod and event watches."""
        return len(self._watchers) + len(self._event_watchers)

    # --- the agent ---

    async def version(self) -> VersionView:
        """Return a fixed version, process id and start time of the agent, and the attribute `python`."""
        return VersionView(
            version="0.1.0",
            pid=4711,
            started_at=STARTED_AT,
            node_name="node-1",
            agent_id="a1",
            python=self.python,
        )

    async def health(self) -> HealthView:
        """Return the attribute `health_view`, which a test may set."""
        return self.health_view

    async def metrics(self) -> Sequence[Metric]:
        """Return the attribute `agent_metrics`, which a test may fill."""
        return self.agent_metrics

    async def plugins(self) -> Sequence[PluginView]:
        """Return the attribute `plugin_views`, which a test may set."""
        return self.plugin_views

    async def reload_plugins(self) -> PluginReload:
        """Record the call and return `plugin_reload`."""
        self.calls.append(("reload",))
        return self.plugin_reload

    async def list_panels(self) -> Sequence[PanelView]:
        """Return a view of each panel in `panels`, in state ready."""
        return [
            PanelView(name=name, title=name.title(), plugin="fake", state="ready") for name in self.panels
        ]

    async def show_panel(self, name: str) -> PanelContent:
        """Return the content of the panel from `panels`. Raises NotFound."""
        if name not in self.panels:
            raise NotFound(f"no plugin registers panel {name!r}")
        return self.panels[name]

    async def config_view(self) -> Sequence[ConfigValue]:
        """Return the attribute `config_values`, which a test may set."""
        return self.config_values

    # --- pods ---

    async def list_pods(self) -> Sequence[Pod]:
        """List the pods, sorted by namespace and name."""
        return [self.pods[key] for key in sorted(self.pods)]

    async def watch_pods(self) -> AsyncIterator[PodChange]:
        """Yield the present pods, then the changes of `put` and `drop`."""
        queue: asyncio.Queue[PodChange] = asyncio.Queue()
        self._watchers.add(queue)
        try:
            for pod in await self.list_pods():
                yield PodChange(type="ADDED", object=pod)
            while True:
                yield await queue.get()
        finally:
            self._watchers.discard(queue)

    async def apply_pod(self, pod: Pod, *, dry_run: bool = False) -> ApplyResult:
        """Store the pod, unless `dry_run` is set or the pod's spec is unchanged.

        Returns the pod, and whether it was created, configured or unchanged. Raises Conflict if restartPolicy
        changes; this fake allows changes of all other fields.
        """
        self.calls.append(("apply", pod.name))
        pod = _in_default_namespace(pod)
        old = self.pods.get((pod.namespace, pod.name))
        if old is not None and old.spec == pod.spec:
            return ApplyResult(action="unchanged", pod=old)
        if old is not None and old.spec.restart_policy != pod.spec.restart_policy:
            raise Conflict(f"pod {pod.ref}: spec.restartPolicy may not change; use replace --force")
        if not dry_run:
            self.put(pod)
        return ApplyResult(action="created" if old is None else "configured", pod=pod)

    async def replace_pod(self, pod: Pod, force: bool, *, dry_run: bool = False) -> ApplyResult:
        """Replace an existing pod, unless `dry_run` is set. Raises NotFound if it does not exist."""
        self.calls.append(("replace", pod.name, force))
        pod = _in_default_namespace(pod)
        if (pod.namespace, pod.name) not in self.pods:
            raise NotFound(f"pod {pod.ref} not found")
        if not dry_run:
            self.put(pod)
        return ApplyResult(action="replaced", pod=pod)

    async def pod_history(self, target: PodTarget) -> PodHistory:
        """Return the pod's actions from `histories`, and `start`. Raises NotFound for an unknown pod."""
        return PodHistory(items=self.histories.get(self._find(target).ref, ()), start=self.start)

    async def delete_pod(self, target: PodTarget, options: DeleteOptions) -> Pod:
        """Delete the pod at once; returns the pod.

        If the test has set `delete_takes_effect` to False, the pod only gets a deletion time.
        """
        self.calls.append(("delete", target.ref, options.grace_seconds, options.force))
        pod = self._find(target)
        if self.delete_takes_effect:
            self.drop(target.namespace, target.name)
            return pod
        meta = msgspec.structs.replace(pod.metadata, deletion_timestamp=STARTED_AT)
        self.put(msgspec.structs.replace(pod, metadata=meta))
        return self.pods[target.namespace, target.name]

    async def restart(self, target: PodTarget, container: str, timeout_seconds: float) -> Sequence[str]:
        """Record the call and return the names of the containers. Raises NotFound for an unknown pod."""
        self.calls.append(("restart", target.ref, container, timeout_seconds))
        return [container] if container else [each.name for each in self._find(target).spec.containers]

    def _find(self, target: PodTarget) -> Pod:
        pod = self.pods.get((target.namespace, target.name))
        if pod is None:
            raise NotFound(f"pod {target.ref} not found")
        return pod

    async def open_logs(self, target: PodTarget, options: LogOptions) -> AsyncIterator[bytes]:
        """Return an iterator over the pieces of the container's log in `logs`. Raises NotFound."""
        self.calls.append(("logs", target.ref, options))
        pod = self._find(target)
        container = options.container or pod.spec.containers[0].name
        if container not in self.logs:
            raise NotFound(f"container {container} of pod {target.ref} has no log")
        return _each(self.logs[container])

    def awake(self, target: PodTarget) -> contextlib.AbstractAsyncContextManager[None]:
        """Return a context in which the pod is in `kept_awake`. Raises NotFound."""
        self._find(target)
        self._fail()
        return self._kept_awake(target)

    @contextlib.asynccontextmanager
    async def _kept_awake(self, target: PodTarget) -> AsyncIterator[None]:
        self.kept_awake.append(target.ref)
        try:
            yield
        finally:
            self.kept_awake.remove(target.ref)

    async def exec(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Remove and return the first item of `sessions`. Raises NotFound for an unknown pod."""
        self.calls.append(("exec", target.ref, container, request))
        self._find(target)
        return self._opened()

    async def attach(self, target: PodTarget, container: str, request: StreamRequest) -> Session | StreamUrl:
        """Remove and return the first item of `sessions`. Raises NotFound for an unknown pod."""
        self.calls.append(("attach", target.ref, container, request))
        self._find(target)
        return self._opened()

    async def port_forward(self, target: PodTarget, port: int) -> Session | StreamUrl:
        """Remove and return the first item of `sessions`. Raises NotFound for an unknown pod."""
        self.calls.append(("port-forward", target.ref, port))
        self._find(target)
        return self._opened()

    def _opened(self) -> Session | StreamUrl:
        opened = self.sessions.pop(0)
        if isinstance(opened, Exception):
            raise opened
        return opened

    def _fail(self) -> None:
        if self.errors:
            raise self.errors.pop(0)

    # --- volumes ---

    async def list_volumes(self) -> Sequence[VolumeView]:
        """Return `volume_views`."""
        return self.volume_views

    async def watch_volumes(self) -> AsyncIterator[Sequence[VolumeView]]:
        """Yield `volume_views` once, and end."""
        yield self.volume_views

    # --- node, events, usage ---

    async def get_node(self) -> Node:
        """Return the attribute `node`, which a test may set."""
        self._fail()
        return self.node

    async def watch_node(self) -> AsyncIterator[Node]:
        """Yield the attribute `node` once, then end."""
        yield self.node

    async def list_events(self) -> Sequence[Event]:
        """Return the attribute `events`, to which `record` adds."""
        return self.events

    async def watch_events(self) -> AsyncIterator[Event]:
        """Yield the events that `record` adds from now on."""
        queue: asyncio.Queue[Event] = asyncio.Queue()
        self._event_watchers.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._event_watchers.discard(queue)

    async def usage(self) -> UsageView:
        """Return the attribute `usage_view`, which a test may set."""
        return self.usage_view

    def usage_history(self, after: int) -> UsageHistory:
        """Return the samples of the attribute `history`, which a test may set, from number `after` on."""
        series = (
            msgspec.structs.replace(each, cpu=each.cpu[after:], memory=each.memory[after:])
            for each in self.history.series
        )
        return msgspec.structs.replace(self.history, series=tuple(series))

    # --- runtimes ---

    async def list_runtimes(self) -> Sequence[RuntimeView]:
        """Return the views in `runtimes`, in the order in which they were added."""
        return list(self.runtimes.values())

    async def watch_runtimes(self) -> AsyncIterator[Sequence[RuntimeView]]:
        """Yield the views in `runtimes` once, then end."""
        yield list(self.runtimes.values())

    async def describe_runtime(self, name: str) -> RuntimeDetail:
        """Return the runtime's entry in `details`; if there is none, a detail with only the runtime's view."""
        return self.details.get(name) or RuntimeDetail(runtime=self._runtime(name))

    def _runtime(self, name: str) -> RuntimeView:
        if name not in self.runtimes:
            raise NotFound(f"runtime {name} not found")
        return self.runtimes[name]

    async def add_runtime(self, text: str, image_endpoint: str | None = None) -> RuntimeView:
        """Add a runtime in status NotReady; returns its view. Raises AlreadyExists.

        `text`: ``WORKLOAD-TYPE:NAME:URL``.
        """
        self.calls.append(("add", text, image_endpoint))
        workload_type, name, url = text.split(":", 2)
        if name in self.runtimes:
            raise AlreadyExists(f"runtime {name} exists")
        self.runtimes[name] = RuntimeView(
            name=name, workload_type=workload_type, kind="fake", url=url, status="NotReady", since=STARTED_AT
        )
        return self.runtimes[name]

    async def drain(self, timeout_seconds: float) -> AsyncIterator[Progress]:
        """End all pods."""
        self.calls.append(("drain", timeout_seconds))
        yield Progress(message="all pods have ended", done=True)

    async def cordon_node(self, cordoned: bool) -> Progress:
        """Record the call."""
        self.calls.append(("cordon node", cordoned))
        return Progress(message="node cordoned" if cordoned else "node uncordoned", done=True)

    async def undo(self) -> Progress:
        """Accept new pods."""
        self.calls.append(("undo",))
        return Progress(message="new pods are accepted", done=True)

    async def remove_runtime(
        self, name: str, *, drain: bool, force: bool, timeout_seconds: float
    ) -> AsyncIterator[Progress]:
        """Remove a runtime and yield the steps of the removal.

        Raises Conflict if the runtime has pods, unless `drain` or `force` is set.
        """
        self.calls.append(("remove", name, drain, force, timeout_seconds))
        runtime = self._runtime(name)
        if runtime.pods and not drain and not force:
            raise Conflict(f"runtime {name} has {runtime.pods} pods; use --drain")
        if drain:
            yield Progress(message=f"runtime {name} cordoned")
        del self.runtimes[name]
        yield Progress(message=f"runtime {name} removed", done=True)

    async def cordon(self, name: str) -> RuntimeView:
        """Set `cordoned` of a runtime; returns its view."""
        self.calls.append(("cordon", name))
        await self.may_cordon.wait()
        self.runtimes[name] = msgspec.structs.replace(self._runtime(name), cordoned=True)
        return self.runtimes[name]

    async def uncordon(self, name: str) -> RuntimeView:
        """Clear `cordoned` of a runtime; returns its view."""
        self.calls.append(("uncordon", name))
        self.runtimes[name] = msgspec.structs.replace(self._runtime(name), cordoned=False)
        return self.runtimes[name]

    # --- images ---

    async def list_images(self) -> ImageListing:
        """Return a listing of the attributes `images` and `missing`, which a test may set."""
        return ImageListing(items=self.images, missing=self.missing)

    async def watch_images(self) -> AsyncIterator[ImageListing]:
        """Yield `images` and `missing` as one listing, then each item of `image_listings`."""
        yield await self.list_images()
        for listing in self.image_listings:
            yield listing

    async def pull_image(self, image: str, runtime: str | None) -> AsyncIterator[PullUpdate]:
        """Yield three updates of a pull; the last one has the image's reference.

        Raises NotFound if the image's name begins with "missing".
        """
        self.calls.append(("pull", image, runtime))
        name = runtime or next(iter(self.runtimes), "default")
        if image.startswith("missing"):
            raise NotFound(f"image {image} not found")
        yield PullUpdate(runtime=name, message="resolving")
        yield PullUpdate(runtime=name, done_bytes=512, total_bytes=1024)
        yield PullUpdate(runtime=name, done_bytes=1024, total_bytes=1024, ref=f"sha256:{image}")

    async def remove_image(self, image: str, runtime: str | None) -> Sequence[str]:
        """Return the names of the stores that have the image, without removing it from `images`.

        Raises NotFound if there are none.
        """
        self.calls.append(("rmi", image, runtime))
        stores = [item.store for item in self.images if image in (item.id, *item.tags)]
        if not stores:
            raise NotFound(f"image {image} not found")
        return stores

    async def prune_images(self, runtime: str | None, all_unused: bool) -> PruneResult:
        """Return the unused images, without removing them from `images`.

        `all_unused` False: only those that the agent pulled.
        """
        self.calls.append(("prune", runtime, all_unused))
        removed = tuple(i for i in self.images if not i.used_by and (all_unused or i.pulled_by_us))
        return PruneResult(removed=removed, freed_bytes=sum(i.size_bytes for i in removed))


def _in_default_namespace(pod: Pod) -> Pod:
    if pod.namespace:
        return pod
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace="default"))


async def _each(pieces: list[bytes | Exception]) -> AsyncIterator[bytes]:
    for piece in pieces:
        if isinstance(piece, Exception):
            raise piece
        yield piece
