"""`PluginProcesses`: decides which registrations run in a child process, and keeps the processes by distribution."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from kubeletx.api import Clock, PodSourceSink
from kubeletx.runtimes.isolation.process import ChildUsage, import_path
from kubeletx.runtimes.isolation.remote import remote_class
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
        self._names = frozenset(registration.name for registration in registrations)
        by_distribution: dict[str, list[Registration]] = {}
        for registration in registrations:
            by_distribution.setdefault(normal_name(registration.distribution), []).append(registration)
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
        for name in sorted({normal_name(registration.distribution) for registration in registrations}):
            await self.by_distribution[name].start()

    def usage(self, distribution: str) -> ChildUsage | None:
        process = self.by_distribution.get(normal_name(distribution))
        return process.usage() if process is not None else None

    async def close(self) -> None:
        await asyncio.gather(*(distribution.close() for distribution in self.by_distribution.values()))


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
        item.plugin: InstalledPlugin(
            name=item.plugin, source=item.source, distribution=item.distribution, version=item.version
        )
        for item in items
    }
    settings_of_items = {item.name: own_settings.get(item.name) for item in items}
    return ServicesInit(
        plugins=tuple(plugins.values()),
        hooks={item.name: item.hook.value for item in items},
        settings={
            name: msgspec.to_builtins(value) for name, value in settings_of_items.items() if value is not None
        },
        node_name=parts.node_name,
        root=str(parts.root),
        has_cluster=parts.cluster is not None,
        sys_path=import_path(),
        volume_plugin_directory=str(parts.volume_plugin_directory),
    )
