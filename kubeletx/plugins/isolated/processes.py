"""`PluginProcesses`: decides which registrations run in a child process, and keeps the processes by distribution."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kubeletx.api import Clock, PodSourceSink
from kubeletx.runtimes.isolation.remote import remote_class
from kubeletx.runtimes.isolation.usage import ChildUsage
from kubeletx.runtimes.plugins.identity import normal_name

from ..candidates import InstalledPlugin
from ..host import PluginHostParts
from ..registrations import Hook, Registration
from .control import SINK, ServicesInit, WireSink, wire_protocol
from .process import PluginProcess

IDLE_SECONDS = 2.0
"""Delay of processes that only new pods need, so that they do not slow down the agent's start."""


class PluginProcesses:
    """The child processes of all distributions that have `registrations` in one."""

    def __init__(
        self,
        registrations: Sequence[Registration],
        *,
        parts: PluginHostParts,
        own_settings: Mapping[str, Any],
        variables: Collection[str] = (),
    ) -> None:
        """`registrations`: all that run in child processes. `own_settings`: their decoded settings, by name.

        `variables`: as for `ChildProcess.start`.
        """
        self._names = frozenset(one.name for one in registrations)
        by_distribution: dict[str, list[Registration]] = {}
        for one in registrations:
            by_distribution.setdefault(normal_name(one.distribution), []).append(one)
        self.by_distribution = {
            name: PluginProcess(items[0].distribution, _init_of(items, parts, own_settings), parts, variables)
            for name, items in by_distribution.items()
        }

    def runs(self, registration: Registration) -> bool:
        return registration.name in self._names

    def proxy(self, registration: Registration) -> Any:
        process = self.by_distribution[normal_name(registration.distribution)]
        if registration.hook is Hook.POD_SOURCE:
            return IsolatedSource(process, registration.name)
        return remote_class(wire_protocol(registration.hook))(lambda: process, registration.name)

    async def prepare(self, registrations: Iterable[Registration], clock: Clock) -> None:
        """Start the processes of these registrations, one after the other, `IDLE_SECONDS` after the agent's start."""
        await clock.sleep(IDLE_SECONDS)
        for name in sorted({normal_name(one.distribution) for one in registrations}):
            await self.by_distribution[name].start()

    def usage(self, distribution: str) -> ChildUsage | None:
        process = self.by_distribution.get(normal_name(distribution))
        return process.usage() if process is not None else None

    async def close(self) -> None:
        await asyncio.gather(*(one.close() for one in self.by_distribution.values()))


class IsolatedSource:
    """A `PodSource` in a child process, which may call the sink while the source runs."""

    def __init__(self, process: PluginProcess, name: str) -> None:
        self._process = process
        self._name = name

    async def run(self, sink: PodSourceSink) -> None:
        target = SINK + self._name
        self._process.sinks.put(target, sink, WireSink)
        try:
            await self._process.call(self._name, "run", (), None)
        finally:
            self._process.sinks.drop(target)


def _init_of(
    items: Iterable[Registration], parts: PluginHostParts, own_settings: Mapping[str, Any]
) -> ServicesInit:
    items = tuple(items)
    plugins = {
        one.plugin: InstalledPlugin(
            name=one.plugin, source=one.source, distribution=one.distribution, version=one.version
        )
        for one in items
    }
    found = {one.name: own_settings.get(one.name) for one in items}
    return ServicesInit(
        plugins=tuple(plugins.values()),
        hooks={one.name: one.hook.value for one in items},
        settings={name: msgspec.to_builtins(value) for name, value in found.items() if value is not None},
        node_name=parts.node_name,
        root=str(parts.root),
        has_cluster=parts.cluster is not None,
        sys_path=[path for path in sys.path if path],
        volume_plugin_directory=str(parts.volume_plugin_directory),
    )
