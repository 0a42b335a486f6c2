"""Component of the agent: the pod manager, the services of its workers, log rotation and probes."""

from __future__ import annotations

from functools import partial

import msgspec

from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.node.status import runtime_labels
from kubeletx.pods import (
    POD_TABLES,
    Counters,
    FileWatcher,
    LogKeeper,
    NodeIdentity,
    PodDependencies,
    PodDirectories,
    PodExecutor,
    PodFiles,
    PodManager,
    PodRecords,
    StatusBoard,
    UnitHooks,
    UnitImages,
    UnitProbes,
    UserNamespaces,
)
from kubeletx.pods.admission import NodeAdmission
from kubeletx.pods.model.sources import BUILT_IN

from ..backend.metrics import pod_metrics, series_of_pods
from ..backend.node import runtime_reports
from ..host.pod_cgroups import make_pod_cgroups
from .images import ImagesAssembly
from .link import LinkAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .plugin_services import PluginsAssembly
from .runtimes import RuntimesAssembly
from .settings import admission_node, rotation_limits
from .tracing import make_traces
from .volumes import VolumesAssembly


class PodsAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that run pods, from `make_pods`.

    `manager`: starts and ends pods; `Assembly.run` runs it. `services`: used by all pod workers. `watcher`: watches log
    files. `cgroups` None: the agent makes no cgroups for pods.
    """

    manager: PodManager
    services: PodExecutor
    admission: NodeAdmission
    directories: PodDirectories
    watcher: FileWatcher
    cgroups: PodCgroupManager | None


def make_pods(
    ctx: PartContext,
    node: NodeAssembly,
    link: LinkAssembly,
    runtimes: RuntimesAssembly,
    volumes: VolumesAssembly,
    images: ImagesAssembly,
    plugins: PluginsAssembly,
) -> PodsAssembly:
    """Build the pod manager and everything that its workers use; no pod has a worker yet."""
    config, clock = ctx.config, ctx.clock
    registry, objects = runtimes.registry, ctx.made.objects
    reporter, context, files = node.reporter, node.context, volumes.files
    cgroups = make_pod_cgroups(config, context, files, ctx.host.trees, registry.cgroup_driver.use)
    probes, watcher = UnitProbes(registry, clock, node.events), FileWatcher()
    logs = LogKeeper(
        handles=registry.handles,
        context=context,
        blocking=files,
        clock=clock,
        watcher=watcher,
        limits=rotation_limits(config),
    )
    admission = NodeAdmission(
        admission_node(config, context, reporter, ctx.host),
        lambda: runtime_labels(runtime_reports(registry)),
        standby_percent=config.pods.standby_requests_percent,
    )
    directories = PodDirectories(context)
    counters = Counters()
    services = PodExecutor(
        PodDependencies(
            registry=registry,
            node=context,
            identity=NodeIdentity(name=reporter.name, host_ips=reporter.ips),
            volumes=volumes.preparer,
            admission=admission,
            images=UnitImages(images.stores, clock, counters, objects),
            probes=probes,
            hooks=UnitHooks(registry, clock, reporter.ips[0] if reporter.ips else ""),
            directories=PodFiles(context, directories, volumes.preparer, files),
            cgroups=cgroups,
            user_mappings=partial(files, UserNamespaces(config.root_dir).mappings_for),
            on_unit_started=logs.wake,
            records=PodRecords(ctx.store),
            board=StatusBoard(),
            counters=counters,
            events=node.events,
            clock=clock,
            review=plugins.review,
            sources=BUILT_IN.with_more(plugins.sources),
            traces=make_traces(ctx, node),
            classes=link.classes,
            cluster=objects,
            extras=ctx.made.extras,
            evacuations=ctx.made.evacuations,
            crash_cap_seconds=config.pods.max_restart_period_seconds,
        )
    )
    manager = PodManager(services, has_lost_history=lambda: ctx.store.lost is not None)
    registry.subscribe(manager)
    link.classes.subscribe(manager.classes_changed)
    ctx.made.add(
        Part(
            name="pods",
            tables=(POD_TABLES,),
            tasks=(Task(name="logs", run=logs.run),),
            metrics=(
                *pod_metrics(manager, in_cluster=link.link is not None),
                *series_of_pods(manager),
                *counters.metrics(),
                *probes.metrics(),
                *(cgroups.metrics() if cgroups is not None else ()),
            ),
            close=(probes.close, watcher.close),
        )
    )
    return PodsAssembly(
        manager=manager,
        services=services,
        admission=admission,
        directories=directories,
        watcher=watcher,
        cgroups=cgroups,
    )
