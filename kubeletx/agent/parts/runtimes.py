"""Part: the runtimes: endpoints of the configuration and of drop-in files, bindings of pods, and the pod network."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from kubeletx.api import Endpoint
from kubeletx.runtimes.binding.bindings import METADATA as RUNTIME_TABLES
from kubeletx.runtimes.binding.bindings import Bindings
from kubeletx.runtimes.binding.tombstones import Tombstones
from kubeletx.runtimes.fleet import FleetConfig
from kubeletx.runtimes.host.host import HostParts
from kubeletx.runtimes.registry import RuntimeRegistry

from ..config.endpoints import check_classes, read_endpoints
from ..host.pod_cgroups import may_make_cgroups
from ..plugins.reload import RunningPlugins
from .drop_ins import DropInWatch
from .link import LinkRoom
from .node import NodeRoom
from .part import Part, PartContext, Task
from .settings import call_limits, pod_network_of

log = structlog.get_logger(__name__)


class RuntimesRoom(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `make_runtimes`: the part, and the runtimes.

    The agent runs `registry` as a task. `plugins` includes those found by a reload.
    """

    part: Part
    registry: RuntimeRegistry
    plugins: RunningPlugins


def read_runtimes(ctx: PartContext) -> tuple[Endpoint, ...]:
    """The endpoints of the configuration. Raises InvalidConfig for each that no plugin serves."""
    endpoints = read_endpoints(ctx.config, ctx.plugins.kinds)
    check_classes(ctx.config, endpoints)
    return endpoints


def make_runtimes(
    ctx: PartContext, node: NodeRoom, link: LinkRoom, endpoints: Sequence[Endpoint]
) -> RuntimesRoom:
    """Make the registry with a handle for each endpoint. An unusable drop-in file is logged and ignored."""
    config, root = ctx.config, ctx.config.root_dir
    bindings, tombstones = Bindings(ctx.store), Tombstones(ctx.store)
    pod_network = pod_network_of(config, ctx.agent_id, ctx.clock)
    makes_cgroups = may_make_cgroups(config.cgroups, ctx.host.trees)
    registry = RuntimeRegistry(
        kinds=ctx.plugins.kinds,
        plan=FleetConfig(
            endpoints=tuple(endpoints),
            settings=ctx.plugins.decode_settings(config.runtimes.plugins),
            class_map=link.classes,
            limits=call_limits(config),
            cgroup_driver=(config.cgroups.driver or "") if makes_cgroups else None,
        ),
        parts=HostParts(
            agent_id=ctx.agent_id,
            node_name=node.reporter.name,
            root=root,
            clock=ctx.clock,
            events=node.events,
            pod_network=pod_network,
        ),
        bindings=bindings,
        tombstones=tombstones,
    )

    running = RunningPlugins(ctx.plugins, on_settings=registry.put_settings)

    async def load() -> None:
        await bindings.load()
        await tombstones.load()
        for error in registry.configure():
            log.error("Ignored runtime drop-in", err=str(error))

    drop_ins = DropInWatch(registry, (root / "runtimes.d", root / "cordons"))
    tasks, closes = [Task(name="drop-ins", run=drop_ins.run)], [running.close]
    if pod_network is not None:
        tasks.append(Task(name="pod-network", run=pod_network.run))
        closes.append(pod_network.close)
    part = Part(name="runtimes", tables=(RUNTIME_TABLES,), load=load, tasks=tuple(tasks), close=tuple(closes))
    return RuntimesRoom(part=part, registry=registry, plugins=running)
