"""`assemble`: every room built and connected, from one configuration. The only place that knows them all."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog

import kubeletx
from kubeletx.api import ObjectRef
from kubeletx.api.names import Event
from kubeletx.apiserver.objects.runtime_classes import RuntimeClasses
from kubeletx.node.capacity import NodeResources
from kubeletx.node.cgroup_fs import CgroupTrees
from kubeletx.node.cgroups import PodCgroupManager
from kubeletx.node.condition_table import METADATA as CONDITION_TABLES
from kubeletx.node.condition_table import ConditionTimes
from kubeletx.node.event_table import METADATA as EVENT_TABLES
from kubeletx.node.events import EventRecorder
from kubeletx.node.memory_events import MemoryEvents
from kubeletx.node.status import NodeReporter, runtime_labels
from kubeletx.pods.admission import Door, NodeAdmission
from kubeletx.pods.counters import Counters
from kubeletx.pods.dependencies import PodDependencies
from kubeletx.pods.eviction.disks import DiskBoard
from kubeletx.pods.eviction.evictor import Node as EvictedNode
from kubeletx.pods.eviction.volume_use import VolumeBoard
from kubeletx.pods.executor import PodExecutor
from kubeletx.pods.logs.directories import PodDirectories
from kubeletx.pods.logs.file_watch import FileWatcher
from kubeletx.pods.logs.keeper import LogKeeper
from kubeletx.pods.logs.pod_files import PodFiles
from kubeletx.pods.logs.reader import LogReader
from kubeletx.pods.manager import PodManager
from kubeletx.pods.model.sources import API
from kubeletx.pods.probes.all_probes import UnitProbes
from kubeletx.pods.probes.hook_runner import UnitHooks
from kubeletx.pods.records import PodRecords
from kubeletx.pods.records import metadata as POD_TABLES
from kubeletx.pods.specs.user_namespaces import UserNamespaces
from kubeletx.pods.status.board import StatusBoard
from kubeletx.pods.status.build import NodeIdentity
from kubeletx.pods.unit_images import UnitImages
from kubeletx.runtimes.binding.bindings import METADATA as RUNTIME_TABLES
from kubeletx.runtimes.binding.bindings import Bindings
from kubeletx.runtimes.binding.tombstones import Tombstones
from kubeletx.runtimes.endpoints.kinds import WorkloadTypes
from kubeletx.runtimes.fleet import Plan
from kubeletx.runtimes.host.clock import SystemClock
from kubeletx.runtimes.host.host import HostParts
from kubeletx.runtimes.host.threads import ThreadDoor
from kubeletx.runtimes.images.credentials import NodeCredentials, default_paths
from kubeletx.runtimes.images.gc import ImageCollector
from kubeletx.runtimes.images.node_credentials import ImageCredentials
from kubeletx.runtimes.images.providers import CredentialProviders
from kubeletx.runtimes.images.records import METADATA as IMAGE_TABLES
from kubeletx.runtimes.images.records import ImageRecords
from kubeletx.runtimes.images.stores import ImageStores
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.runtimes.usage import UsageBoard
from kubeletx.server.admin.socket import AdminServer
from kubeletx.server.healthz import health_server
from kubeletx.server.kubelet.readonly import readonly_server
from kubeletx.server.metrics.http_counts import HttpCounts
from kubeletx.store import Store
from kubeletx.volumes.preparer import VolumePreparer

from .backend import Backend
from .backend.about import AgentBackend
from .backend.checkpoints import CheckpointBackend
from .backend.counted import Counted, SecretFigures
from .backend.figures import FigureBackend
from .backend.images import ImageBackend
from .backend.logs import PodLogs
from .backend.machines import MachineBackend
from .backend.node import NodeBackend, runtime_reports
from .backend.pods import PodBackend
from .backend.runtimes import RuntimeBackend
from .cluster.link import make_link
from .cluster.member import Cluster, make_cluster
from .config.endpoints import check_classes, read_endpoints
from .config.ports import listens
from .config.tree import AgentConfig
from .host.file_threads import FileThreads
from .host.files import make_directory
from .host.guard import Ours, check, collisions, find_kubelets, is_port_free
from .host.identity import ensure_agent_id, lock_root
from .host.pod_cgroups import check_cgroup_version, check_swap, make_pod_cgroups, may_make_cgroups
from .host.source_health import SourceHealth
from .host.watchdog import Pulse
from .parts.clean_up import CleanUp
from .parts.drop_ins import DropInWatch
from .parts.eviction import make_evictor, pids_counter
from .parts.kubelet_api import kubelet_server, review_client
from .parts.plugin_rooms import make_plugin_rooms
from .parts.settings import (
    admission_node,
    call_limits,
    collection_settings,
    node_context,
    node_plan,
    pod_network_of,
    provider_plan,
    pull_settings,
    rotation_limits,
)
from .parts.shutdown import make_shutdown
from .parts.sources import Sources, make_sources
from .plugins import load_plugins, log_plugins
from .plugins.host_parts import PluginHostParts
from .plugins.reload import RunningPlugins

log = structlog.get_logger(__name__)

VOLUME_THREADS = 16
"""How many dead file servers may keep their questions before volumes go unmeasured."""


class Assembly(msgspec.Struct, frozen=True, kw_only=True):
    """The agent's parts, built and connected; nothing runs yet."""

    config: AgentConfig
    clock: SystemClock
    node_name: str
    registry: RuntimeRegistry
    manager: PodManager
    backend: Backend
    sources: Sources
    cluster: Cluster | None
    cgroups: PodCgroupManager | None
    pods_limit: NodeResources | None
    servers: tuple[Server, ...]
    background: dict[str, Callable[[], Coroutine[Any, Any, None]]]
    """Tasks beside runtimes, pods and sources, by name."""

    async def start_servers(self) -> None:
        """Listen."""
        for server in self.servers:
            await server.start()

    async def stop_servers(self) -> None:
        """Stop listening; open streams are cut."""
        for server in reversed(self.servers):
            await server.stop()


class Server(Protocol):
    """One listening server."""

    async def start(self) -> None:
        """Listen."""
        ...

    async def stop(self) -> None:
        """Stop listening and cut what is open."""
        ...


@asynccontextmanager
async def assemble(config: AgentConfig) -> AsyncIterator[Assembly]:
    """Build everything. On leaving, everything is closed in reverse order."""
    clock = SystemClock()
    async with AsyncExitStack() as stack:
        lock = lock_root(config.root_dir)
        stack.callback(os.close, lock)
        agent_id, was_here = ensure_agent_id(config.root_dir)
        make_directory(config.logs.pod_logs_dir, "--pod-logs-dir")
        plugins = load_plugins()
        log_plugins(plugins)
        endpoints = read_endpoints(config, plugins.kinds)
        check_classes(config, endpoints)
        settings = plugins.decode_settings(config.runtimes.plugins)
        credential_plan = provider_plan(config)
        reporter = NodeReporter(node_plan(config), clock=clock)
        reporter.load()
        trees = CgroupTrees()
        _guard(config, trees, sockets=tuple(e.url for e in endpoints))

        store = await Store.open(
            config.root_dir / "kubeletx.db",
            [RUNTIME_TABLES, IMAGE_TABLES, POD_TABLES, EVENT_TABLES, CONDITION_TABLES],
            expected=was_here,
        )
        stack.push_async_callback(store.close)
        await reporter.remember(ConditionTimes(store))
        began_at = clock.now()
        events = EventRecorder(clock=clock, node_name=reporter.name, store=store)
        await events.load()
        node_ref = ObjectRef(kind="Node", name=reporter.name, uid=reporter.name)
        stack.callback(events.flush)
        pod_network = pod_network_of(config, agent_id, clock)
        bindings, tombstones = Bindings(store), Tombstones(store)
        await bindings.load()
        await tombstones.load()

        classes = RuntimeClasses(config.runtimes.classes)
        link = make_link(config, reporter.name, classes, clock)
        if link is not None:
            stack.push_async_callback(link.close)
        objects = {API: link.objects} if link is not None else {}
        registry = RuntimeRegistry(
            kinds=plugins.kinds,
            plan=Plan(
                endpoints=endpoints,
                settings=settings,
                class_map=classes,
                limits=call_limits(config),
                cgroup_driver=(config.cgroups.driver or "")
                if may_make_cgroups(config.cgroups, trees)
                else None,
            ),
            parts=HostParts(
                agent_id=agent_id,
                node_name=reporter.name,
                root=config.root_dir,
                clock=clock,
                events=events,
                pod_network=pod_network,
            ),
            bindings=bindings,
            tombstones=tombstones,
        )
        running_plugins = RunningPlugins(plugins, on_settings=registry.put_settings)
        stack.callback(running_plugins.close)
        for error in registry.configure():
            log.error("Ignored runtime drop-in", err=str(error))

        files = FileThreads()
        stack.callback(files.close)
        volume_threads = ThreadDoor("volume-usage", VOLUME_THREADS)
        stack.callback(volume_threads.close)
        events.record(
            node_ref,
            type="Normal",
            reason=Event.STARTING,
            message=f"Starting kubeletx {kubeletx.__version__}",
        )
        check_cgroup_version(config.cgroups, trees.version, events, node_ref)
        check_swap(config, trees.version)
        context = node_context(config, agent_id, reporter, trees.version)
        image_records = ImageRecords(store)
        await image_records.load()
        providers = CredentialProviders(credential_plan, cluster=objects, clock=clock)
        stack.callback(providers.close)
        stores = ImageStores(
            registry,
            clock=clock,
            records=image_records,
            credentials=ImageCredentials(NodeCredentials(default_paths(config.root_dir)), providers),
            settings=pull_settings(config),
        )
        stack.push_async_callback(stores.close)
        volumes = VolumePreparer(root_dir=config.root_dir, blocking=files, fields=context.fields())
        directories = PodDirectories(context)
        cgroups = make_pod_cgroups(config, context, files, trees, registry.cgroup_driver.use)
        probes = UnitProbes(registry, clock, events)
        stack.push_async_callback(probes.close)
        watcher = FileWatcher()
        stack.callback(watcher.close)
        logs = LogKeeper(
            handles=registry.handles,
            context=context,
            blocking=files,
            clock=clock,
            watcher=watcher,
            limits=rotation_limits(config),
        )
        door = Door()
        admission = NodeAdmission(
            admission_node(config, context, reporter), door, lambda: runtime_labels(runtime_reports(registry))
        )
        counters = Counters()
        services = PodExecutor(
            PodDependencies(
                registry=registry,
                node=context,
                identity=NodeIdentity(name=reporter.name, host_ips=reporter.ips),
                volumes=volumes,
                admission=admission,
                images=UnitImages(stores, clock, counters, objects),
                probes=probes,
                hooks=UnitHooks(registry, clock, reporter.ips[0] if reporter.ips else ""),
                directories=PodFiles(context, directories, volumes, files),
                cgroups=cgroups,
                user_mappings=partial(files, UserNamespaces(config.root_dir).mappings_for),
                on_unit_started=logs.wake,
                records=PodRecords(store),
                board=StatusBoard(),
                counters=counters,
                events=events,
                clock=clock,
                classes=classes,
                cluster=objects,
                crash_cap_seconds=config.pods.max_restart_period_seconds,
            )
        )
        manager = PodManager(services, keeps_orphans=store.lost is not None)
        registry.subscribe(manager)
        classes.subscribe(manager.classes_changed)
        source_health = SourceHealth(clock=clock, events=events, node=node_ref)
        sources = make_sources(
            config, manager, clock, reporter.name, WorkloadTypes(plugins.kinds), source_health, events
        )
        stack.push_async_callback(sources.applied.close)
        collector = ImageCollector(
            stores,
            records=image_records,
            clock=clock,
            events=events,
            node=node_ref,
            settings=collection_settings(config),
            wanted=manager.images,
        )
        images = ImageBackend(
            registry=registry,
            manager=manager,
            stores=stores,
            collector=collector,
            records=image_records,
            clock=clock,
        )
        clean_up = CleanUp(
            manager=manager,
            registry=registry,
            volumes=volumes,
            directories=directories,
            records=services.records,
            blocking=files,
            clock=clock,
            sources=sources.names | ({API} if config.cluster.kubeconfig is not None else set()),
        )
        drop_ins = DropInWatch(registry, (config.root_dir / "runtimes.d", config.root_dir / "cordons"))
        usage = UsageBoard(registry, agent_id=agent_id, clock=clock)
        disks = DiskBoard(
            context,
            pods=manager.running,
            blocking=files,
            clock=clock,
            period_seconds=config.eviction.volume_stats_seconds,
        )
        volume_uses = VolumeBoard(
            pods=manager.running,
            prepared=volumes.prepared,
            blocking=volume_threads.run,
            clock=clock,
            period_seconds=config.eviction.volume_stats_seconds,
        )
        node = NodeBackend(
            reporter=reporter,
            registry=registry,
            manager=manager,
            events=events,
            usage=usage,
            images=images,
        )
        plugin_rooms = make_plugin_rooms(
            config,
            plugins,
            settings,
            PluginHostParts(
                node_name=reporter.name,
                root=config.root_dir,
                clock=clock,
                events=events,
                cluster=objects.get(API),
            ),
            node,
        )
        if plugin_rooms is not None:
            stack.callback(plugin_rooms.close)
        stalls = MemoryEvents(clock)
        stack.callback(stalls.close)
        evictor = make_evictor(
            config,
            EvictedNode(
                root_dir=config.root_dir,
                ref=node_ref,
                pods=services.active,
                registry=registry,
                stores=stores,
                collector=collector,
                usage=usage,
                disks=disks,
                pids=pids_counter(cgroups, trees),
                evictions=services.counters.evictions,
            ),
            door=door,
            node=node,
            clock=clock,
            blocking=files,
            events=events,
            stalls=stalls,
        )
        cluster = None
        if link is not None:
            cluster = make_cluster(
                config,
                link,
                agent_id=agent_id,
                node_name=reporter.name,
                addresses=reporter.ips,
                manager=manager,
                admission=admission,
                board=services.board,
                sources=sources.names,
                recorder=events,
                watch_node=node.watch_node,
                watch_events=partial(events.watch_events, since=began_at),
                clock=clock,
            )
        shutdown = make_shutdown(
            config,
            pods=services.active,
            door=door,
            node=node,
            node_ref=node_ref,
            statuses=cluster.statuses if cluster is not None else None,
            clock=clock,
            blocking=files,
            events=events,
        )
        http_counts = HttpCounts()
        pulse = Pulse()
        pulse.start()
        stack.callback(pulse.close)
        pods = PodBackend(
            manager,
            services,
            sources.applied,
            PodLogs(context, services, LogReader(blocking=files, watcher=watcher)),
        )
        backend = Backend(
            about=AgentBackend(
                config=config,
                reporting=cluster.lease.reporting if cluster is not None else None,
                agent_id=agent_id,
                node_name=reporter.name,
                started_at=clock.now(),
                plugins=running_plugins,
                plugin_rooms=plugin_rooms,
                counted=Counted(
                    registry=registry,
                    manager=manager,
                    counters=services.counters,
                    probes=probes,
                    claims=volume_uses,
                    volumes=volumes,
                    cgroups=cgroups,
                    secrets=SecretFigures(
                        providers=providers,
                        client=link.client_rotation if link is not None else None,
                        server=cluster.server_rotation if cluster is not None else None,
                    ),
                    http=http_counts,
                    requests=link.client.counts if link is not None else None,
                    plugins=plugin_rooms.counts if plugin_rooms is not None else None,
                ),
                pulse=pulse,
                sources=source_health,
            ),
            pods=pods,
            machines=MachineBackend(services, pods.find_worker),
            node=node,
            runtimes=RuntimeBackend(registry, manager, plugins.kinds, stores, running_plugins),
            images=images,
        )
        reviews = review_client(config, link.client if link is not None else None, clock)
        if reviews is not None:
            stack.push_async_callback(reviews.close)
        kubelet_api = kubelet_server(
            config,
            backend,
            FigureBackend(
                node_name=reporter.name,
                usage=usage,
                stores=stores,
                manager=manager,
                services=services,
                context=context,
                cgroups=cgroups,
                trees=trees,
                disks=disks,
                volumes=volume_uses,
                blocking=files,
                clock=clock,
            ),
            CheckpointBackend(pods, config.root_dir, clock),
            reviews,
            node_name=reporter.name,
            addresses=reporter.ips,
            websockets=services.counters.websocket_streams,
            http_counts=http_counts,
            blocking=files,
            clock=clock,
        )
        yield Assembly(
            config=config,
            clock=clock,
            node_name=reporter.name,
            registry=registry,
            manager=manager,
            backend=backend,
            sources=sources,
            cluster=cluster,
            cgroups=cgroups,
            pods_limit=reporter.pods_limit if "pods" in config.cgroups.enforce_allocatable else None,
            servers=(
                *_servers(config, backend, http_counts),
                *([kubelet_api] if kubelet_api is not None else []),
            ),
            background={
                "clean-up": clean_up.run,
                "drop-ins": drop_ins.run,
                "image-gc": collector.run,
                "logs": logs.run,
                "disk-usage": disks.run,
                "volume-usage": volume_uses.run,
                "eviction": evictor.run,
                "host-shutdown": shutdown.run,
                **({} if plugin_rooms is None else plugin_rooms.background()),
                **({} if pod_network is None else {"pod-network": pod_network.run}),
            },
        )


def _servers(config: AgentConfig, backend: Backend, counts: HttpCounts) -> tuple[Server, ...]:
    servers: list[Server] = [AdminServer(backend=backend, socket_path=config.socket_path)]
    settings = config.server
    if settings.healthz_port:
        servers.append(health_server(backend, settings.healthz_bind_address, settings.healthz_port))
    if settings.read_only_port:
        servers.append(readonly_server(backend, settings.address, settings.read_only_port, counts))
    return tuple(servers)


def _guard(config: AgentConfig, trees: CgroupTrees, *, sockets: tuple[str, ...]) -> None:
    ours = Ours(
        root_dir=config.root_dir,
        logs_dir=config.logs.pod_logs_dir,
        cgroup_root=config.cgroups.root if may_make_cgroups(config.cgroups, trees) else None,
        sockets=sockets,
        ports=listens(config),
    )
    found = collisions(ours, find_kubelets(), is_port_free)
    for problem in check(found, share_runtime=config.runtimes.share_runtime):
        log.warning("Shares a runtime with a kubelet", err=problem)
