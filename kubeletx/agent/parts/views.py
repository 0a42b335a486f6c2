"""Component of the agent: measured usage, images and the node, for the servers, eviction and the cluster."""

from __future__ import annotations

from functools import partial

import msgspec

from kubeletx.node.host_usage import read_host
from kubeletx.pods import DiskBoard, VolumeBoard
from kubeletx.runtimes.images.gc import ImageCollector
from kubeletx.runtimes.usage import UsageBoard

from ..backend.figures import FigureBackend
from ..backend.images import ImageBackend
from ..backend.metrics import volume_metrics
from ..backend.node import NodeBackend
from ..backend.runtimes import RuntimeBackend
from ..backend.volumes import VolumeBackend, attached_volumes
from .images import ImagesAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .plugin_services import PluginsAssembly
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .settings import collection_settings
from .volumes import VolumesAssembly


class ViewsAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Measured usage, and the objects that show it, images, the node, runtimes and volumes, from `make_views`.

    `collector`: removes unused images. `usage`: usage that runtimes measured. `disks`: disk usage by pod. `figures`:
    measures the usage that the kubelet's API serves as metrics.
    """

    collector: ImageCollector
    images: ImageBackend
    node: NodeBackend
    usage: UsageBoard
    disks: DiskBoard
    figures: FigureBackend
    runtimes: RuntimeBackend
    volumes: VolumeBackend


def make_views(
    ctx: PartContext,
    node: NodeAssembly,
    runtimes: RuntimesAssembly,
    images: ImagesAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    plugins: PluginsAssembly,
) -> ViewsAssembly:
    """Build the tasks that measure disk usage and collect unused images, and the objects that show what they measure."""
    registry, manager, clock = runtimes.registry, pods.manager, ctx.clock
    period = ctx.config.eviction.volume_stats_seconds
    collector = ImageCollector(
        images.stores,
        records=images.records,
        clock=clock,
        events=node.events,
        node=node.ref,
        settings=collection_settings(ctx.config),
        wanted=manager.images,
    )
    image_views = ImageBackend(
        registry=registry,
        manager=manager,
        stores=images.stores,
        collector=collector,
        records=images.records,
        clock=clock,
    )
    usage = UsageBoard(registry, agent_id=ctx.agent_id, clock=clock)
    disks = DiskBoard(
        node.context, pods=manager.running, blocking=volumes.files, clock=clock, period_seconds=period
    )
    volume_uses = VolumeBoard(
        pods=manager.running,
        prepared=volumes.preparer.prepared,
        stats=volumes.preparer.driven.stats,
        blocking=volumes.measuring.run,
        clock=clock,
        period_seconds=period,
    )
    node_view = NodeBackend(
        reporter=node.reporter,
        registry=registry,
        manager=manager,
        events=node.events,
        usage=usage,
        images=image_views,
        attached=partial(attached_volumes, volumes.preparer),
        read_host=partial(volumes.files, read_host, ctx.config.root_dir),
        clock=clock,
        checks=plugins.checks,
    )
    runs = {"image-gc": collector.run, "disk-usage": disks.run, "volume-usage": volume_uses.run}
    ctx.made.add(
        Part(
            name="views",
            tasks=tuple(Task(name=name, run=run) for name, run in runs.items()),
            metrics=(*volume_metrics(manager, volumes.preparer, volume_uses), *collector.metrics()),
            close=(collector.close, node_view.usage_ring.close),
        )
    )
    return ViewsAssembly(
        collector=collector,
        images=image_views,
        node=node_view,
        usage=usage,
        disks=disks,
        figures=FigureBackend(
            node_name=node.reporter.name,
            usage=usage,
            stores=images.stores,
            manager=manager,
            services=pods.services,
            context=node.context,
            cgroups=pods.cgroups,
            trees=ctx.host.trees,
            disks=disks,
            volumes=volume_uses,
            blocking=volumes.files,
            clock=clock,
        ),
        runtimes=RuntimeBackend(registry, manager, ctx.plugins.kinds, images.stores, runtimes.plugins),
        volumes=VolumeBackend(
            manager=manager, preparer=volumes.preparer, disks=disks, board=volume_uses, clock=clock
        ),
    )
