"""Component of the agent: its runtimes, the records that assign pods to them, and the pod network.

The runtimes' endpoints come from the configuration and from drop-in files.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import msgspec
import structlog

from kubeletx.api import Endpoint
from kubeletx.linux.inotify import Inotify
from kubeletx.plugins.reload import RunningPlugins
from kubeletx.runtimes.binding.bindings import METADATA as RUNTIME_TABLES
from kubeletx.runtimes.binding.bindings import Bindings
from kubeletx.runtimes.binding.tombstones import Tombstones
from kubeletx.runtimes.fleet import FleetConfig
from kubeletx.runtimes.host.host import HostParts
from kubeletx.runtimes.metrics import runtime_metrics
from kubeletx.runtimes.pod_cidrs import PodCidrs
from kubeletx.runtimes.registry import RuntimeRegistry

from ..config.endpoints import check_classes, check_plugin_isolation, read_endpoints
from ..host.pod_cgroups import may_make_cgroups
from ..host.slow_calls import watched_markers
from .link import LinkAssembly
from .node import NodeAssembly
from .part import Part, PartContext, Task
from .settings import call_limits, configured_pod_cidrs, pod_network_of

log = structlog.get_logger(__name__)
QUIET_SECONDS = 0.2
"""Delay between a change and the reading of the files; files written within the delay are read together."""


class RuntimesAssembly(msgspec.Struct, frozen=True, kw_only=True):
    """The runtimes of the node, from `make_runtimes`.

    `registry`: all runtimes; `Assembly.run` runs it. `plugins`: the loaded plugins, including plugins that a reload
    loads. `pod_cidrs`: passes the address ranges of pods to the runtimes.
    """

    registry: RuntimeRegistry
    plugins: RunningPlugins
    pod_cidrs: PodCidrs


def read_runtimes(ctx: PartContext) -> tuple[Endpoint, ...]:
    """Read the runtime endpoints of the configuration, and check its runtime classes.

    Raises InvalidConfig naming each wrong item, such as an endpoint that no plugin serves.
    """
    endpoints = read_endpoints(ctx.config, ctx.plugins.kinds)
    check_classes(ctx.config, endpoints)
    check_plugin_isolation(ctx.config, ctx.plugins.kinds, tuple(ctx.plugins.registrations.settings()))
    return endpoints


def make_runtimes(
    ctx: PartContext, node: NodeAssembly, link: LinkAssembly, endpoints: Sequence[Endpoint]
) -> RuntimesAssembly:
    """Build the registry of runtimes for these endpoints.

    The runtimes are made when the state database is loaded. An unusable drop-in file is then logged and ignored.
    """
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
            isolation=config.runtimes.plugin_isolation,
            variables=config.plugins.variables,
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

    running = RunningPlugins(
        ctx.plugins,
        on_settings=registry.fleet.put_settings,
        sections=config.runtimes.plugins,
        settings=config.plugins,
        markers=watched_markers(root, config.plugins),
    )
    for name in config.runtimes.plugins:
        if ctx.plugins.kinds.may_come(name) and name not in ctx.plugins.registrations.settings():
            log.warning("Ignored settings of a plugin that is not loaded", plugin=name)

    async def load() -> None:
        await bindings.load()
        await tombstones.load()
        for error in registry.configure():
            log.error("Ignored runtime drop-in", err=str(error))

    drop_ins = DropInWatch(registry, (root / "runtimes.d", root / "cordons"))
    pod_cidrs = PodCidrs(registry, clock=ctx.clock, cidrs=configured_pod_cidrs(config))
    tasks = [Task(name="drop-ins", run=drop_ins.run), Task(name="pod-cidrs", run=pod_cidrs.run)]
    closes = [running.close]
    if pod_network is not None:
        tasks.append(Task(name="pod-network", run=pod_network.run))
        closes.append(pod_network.close)
    ctx.made.add(
        Part(
            name="runtimes",
            tables=(RUNTIME_TABLES,),
            load=load,
            tasks=tuple(tasks),
            metrics=runtime_metrics(registry),
            close=tuple(closes),
        )
    )
    return RuntimesAssembly(registry=registry, plugins=running, pod_cidrs=pod_cidrs)


class DropInWatch:
    """Watches the drop-in directories of runtimes, and makes the registry read the files after each change."""

    def __init__(self, registry: RuntimeRegistry, directories: Sequence[Path]) -> None:
        self._registry = registry
        self._directories = tuple(directories)
        self._refused: dict[str, str] = {}

    async def run(self) -> None:
        """Make the registry read the files now and after each change, until cancelled."""
        changed = asyncio.Event()
        changed.set()
        watch = Inotify(lambda _events: changed.set())
        try:
            for directory in self._directories:
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                watch.watch_directory(str(directory))
            while True:
                await changed.wait()
                await asyncio.sleep(QUIET_SECONDS)
                changed.clear()
                await self._reload()
        finally:
            watch.close()

    async def _reload(self) -> None:
        """Make the registry read the files again; log each problem that was not logged before."""
        refused = {
            error.obj or error.field: str(error) for error in await self._registry.fleet.reload_dropins()
        }
        for origin, text in refused.items():
            if self._refused.get(origin) != text:
                log.error("Ignored runtime drop-in", err=text)
        self._refused = refused
