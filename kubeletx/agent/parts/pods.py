"""Component of the agent: the pod manager, the services of its workers, log rotation and probes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import msgspec

from kubeletx.api import ClusterObjects
from kubeletx.node.cgroups.pods import PodCgroupManager
from kubeletx.node.status import runtime_labels
from kubeletx.pods import (
    POD_TABLES,
    Counters,
    ExtrasProvider,
    FileWatcher,
    LogKeeper,
    NodeIdentity,
    PodDependencies,
    PodDirectories,
    PodExecutor,
    PodFiles,
    PodManager,
    PodRecords,
    Review,
    StatusBoard,
    UnitHooks,
    UnitImages,
    UnitProbes,
    UserNamespaces,
)
from kubeletx.pods.admission import NodeAdmission
from kubeletx.pods.model.sources import BUILT_IN, SourceTraits

from ..backend.node import runtime_reports
from ..host.pod_cgroups import make_pod_cgroups
from .images import ImagesAssembly
from .link import LinkAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .runtimes import RuntimesAssembly
from .settings import admission_node, rotation_limits
from .volumes import VolumesAssembly


class PodsAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_pods`: the objects that run pods.

    `manager`: starts and ends pods; `Assembly.run` runs it. `services`: used by all pod workers. `watcher`: watches log files. `cgroups` None: the agent makes no
    cgroups for pods.
    """

    part: Part
    manager: PodManager
    services: PodExecutor
    admission: NodeAdmission
    probes: UnitProbes
    directories: PodDirectories
    watcher: FileWatcher
    cgroups: PodCgroupManager | None


class PodNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of `make_pods`: the results of earlier factories.

    `objects`: access to the API objects that pods may refer to, by name of the pods' source. `extras`: providers of
    further mounts, environment variables and annotations for containers, by name.
    """

    node: NodeAssembly
    link: LinkAssembly
    runtimes: RuntimesAssembly
    volumes: VolumesAssembly
    images: ImagesAssembly
    objects: Mapping[str, ClusterObjects]
    extras: Mapping[str, ExtrasProvider]
    review: Review | None = None
    """Reviews a new pod before it is assigned to a runtime; None: only the node's own admission decides."""
    more_sources: tuple[SourceTraits, ...] = ()
    """Traits of the pod sources of plugins."""


def make_pods(ctx: PartContext, needs: PodNeeds) -> PodsAssembly:
    """Build the pod manager and everything that its workers use; no pod has a worker yet."""
    config, clock = ctx.config, ctx.clock
    node, volumes, registry = needs.node, needs.volumes, needs.runtimes.registry
    reporter, context, files = node.reporter, node.context, needs.volumes.files
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
            images=UnitImages(needs.images.stores, clock, counters, needs.objects),
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
            review=needs.review,
            sources=BUILT_IN.with_more(needs.more_sources),
            classes=needs.link.classes,
            cluster=needs.objects,
            extras=needs.extras,
            crash_cap_seconds=config.pods.max_restart_period_seconds,
        )
    )
    manager = PodManager(services, has_lost_history=lambda: ctx.store.lost is not None)
    registry.subscribe(manager)
    needs.link.classes.subscribe(manager.classes_changed)
    return PodsAssembly(
        part=Part(
            name="pods",
            tables=(POD_TABLES,),
            tasks=(Task(name="logs", run=logs.run),),
            close=(probes.close, watcher.close),
        ),
        manager=manager,
        services=services,
        admission=admission,
        probes=probes,
        directories=directories,
        watcher=watcher,
        cgroups=cgroups,
    )
