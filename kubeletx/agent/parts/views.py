"""Component of the agent: measured usage, images and the node, for the servers, eviction and the cluster."""

from __future__ import annotations

from functools import partial

import msgspec

from kubeletx.node.host_usage import read_host
from kubeletx.node.readiness import CheckFacts
from kubeletx.pods import DiskBoard, VolumeBoard
from kubeletx.runtimes.images.gc import ImageCollector
from kubeletx.runtimes.usage import UsageBoard

from ..backend.images import ImageBackend
from ..backend.node import NodeBackend
from ..backend.volumes import attached_volumes
from .images import ImagesAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .pods import PodsAssembly
from .runtimes import RuntimesAssembly
from .settings import collection_settings
from .volumes import VolumesAssembly


class ViewsAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """Component built by `make_views`: measured usage, images and the node.

    `collector`: removes unused images. `images`, `node`: answer requests of the servers. `usage`: usage that runtimes
    measured. `disks`: disk usage by pod. `volumes`: usage of volumes.
    """

    part: Part
    collector: ImageCollector
    images: ImageBackend
    node: NodeBackend
    usage: UsageBoard
    disks: DiskBoard
    volumes: VolumeBoard


def make_views(
    ctx: PartContext,
    node: NodeAssembly,
    runtimes: RuntimesAssembly,
    images: ImagesAssembly,
    volumes: VolumesAssembly,
    pods: PodsAssembly,
    checks: tuple[CheckFacts, ...],
) -> ViewsAssembly:
    """Build the tasks that measure disk usage and collect unused images, and the objects that show node and images.

    `checks`: the plugins' health checks, before their first results.
    """
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
        checks=checks,
    )
    runs = {"image-gc": collector.run, "disk-usage": disks.run, "volume-usage": volume_uses.run}
    return ViewsAssembly(
        part=Part(
            name="views",
            tasks=tuple(Task(name=name, run=run) for name, run in runs.items()),
            close=(collector.close,),
        ),
        collector=collector,
        images=image_views,
        node=node_view,
        usage=usage,
        disks=disks,
        volumes=volume_uses,
    )
