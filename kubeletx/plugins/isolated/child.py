"""`ChildServices`: imports and serves the plugins of one distribution in a child process.

At its start, the agent asks such a process what each plugin registers. Later it asks one to make what was registered,
and calls that.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api import ClusterObjects, Records, SystemClock, Unavailable
from kubeletx.runtimes.isolation.child import ChildEvents, extend_path
from kubeletx.runtimes.isolation.peer import Peer
from kubeletx.runtimes.isolation.remote import Served, remote_class

from ..candidates import FAILED, InstalledPlugin, LoadedPlugin
from ..host import PluginHostParts, RegistrationHost
from ..loading import load_candidate
from ..registrations import Hook, Registration
from .control import CLUSTER, RECORDS, SINK, Imports, ReportedPlugin, ServicesInit, wire_protocol
from .guarded import Guarded, failing
from .importing import Importer
from .sink_calls import BlockingSink, SinkConnection


class ChildServices:
    """Imports the plugins and makes what they registered; the agent calls it as `CONTROL`."""

    def __init__(self, served: Served, peer: Peer, sinks: int | None = None) -> None:
        """`served`: gets the objects that the agent may call. `peer`: the connection to the agent.

        `sinks`: descriptor of the socket for pod sources; None: `init` is not called.
        """
        self._served = served
        self._peer = peer
        self._sinks = SinkConnection(sinks) if sinks is not None else None

    async def register(self, imports: Imports) -> tuple[ReportedPlugin, ...]:
        """Import the plugins of one distribution in a fork, and return what each registered."""
        extend_path(imports.sys_path)
        importer = Importer(imports, SystemClock())
        return tuple(await importer.registered([_about(plugin) for plugin in imports.plugins]))

    async def init(self, init: ServicesInit) -> None:
        """Import the plugins and call the factories. A failure of one is the answer to each call of it."""
        assert self._sinks is not None
        extend_path(init.sys_path)
        parts = _host_parts(init, self._peer)
        registrations, problems = _registrations(init.plugins)
        for name, hook in init.hooks.items():
            registration = registrations.get(name)
            if registration is None or registration.hook.value != hook:
                problem = "; ".join(problems) or f"the installed plugin registers no {hook} {name!r}"
                error = Unavailable(f"{problem}; restart the agent after an update of the plugin")
                self._served.put(name, None, wire_protocol(Hook(hook)), failing(error))
                continue
            guarded = Guarded(registration, BlockingSink(self._sinks, SINK + name))
            guarded.make(_settings(registration, init), RegistrationHost(registration, parts))
            self._served.put(name, None, wire_protocol(registration.hook), guarded.call)

    async def ping(self) -> None:
        return


def _registrations(plugins: Iterable[InstalledPlugin]) -> tuple[dict[str, Registration], list[str]]:
    """Import the plugins; return what they registered, by name, and a sentence for each import that failed."""
    registrations: dict[str, Registration] = {}
    problems = []
    for plugin in plugins:
        candidate = load_candidate(_about(plugin))
        registrations.update({item.name: item for item in candidate.registrations})
        if candidate.about.reason:
            problems.append(candidate.about.reason)
    return registrations, problems


def _about(plugin: InstalledPlugin) -> LoadedPlugin:
    return LoadedPlugin(state=FAILED, **msgspec.structs.asdict(plugin))


def _settings(registration: Registration, init: ServicesInit) -> Any:
    if registration.settings is None or registration.name not in init.settings:
        return None
    return msgspec.convert(init.settings[registration.name], registration.settings)


def _host_parts(init: ServicesInit, peer: Peer) -> PluginHostParts:
    def records(kind: str) -> Records:
        made: Records = remote_class(Records)(lambda: peer, RECORDS + kind)
        return made

    return PluginHostParts(
        node_name=init.node_name,
        root=Path(init.root),
        clock=SystemClock(),
        events=ChildEvents(peer),
        records=records,
        cluster=remote_class(ClusterObjects)(lambda: peer, CLUSTER) if init.has_cluster else None,
        volume_plugin_directory=Path(init.volume_plugin_directory),
    )
