"""The child process of a distribution: ``python -m kubeletx.plugins.isolated.child FD [SINK_FD]``.

It imports the distribution's plugins, and handles the agent's calls until the agent closes the socket or dies. At its
start, the agent asks such a process what each plugin registers, without SINK_FD. Later it asks one to make what was
registered, and calls that.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from kubeletx.api import (
    AdmissionCheck,
    ClusterObjects,
    HealthCheck,
    ObjectUser,
    Panel,
    PodUid,
    Records,
    Unavailable,
    VolumeDriver,
)
from kubeletx.runtimes.host.clock import SystemClock
from kubeletx.runtimes.isolation.child import ChildEvents, run_child, serve
from kubeletx.runtimes.isolation.peer import Peer
from kubeletx.runtimes.isolation.remote import Served, remote_class

from ..candidates import FAILED, LoadedPlugin
from ..host import RegistrationHost
from ..host_parts import PluginHostParts
from ..loading import load_candidate
from ..registrations import Hook, Registration
from .control import (
    CLUSTER,
    RECORDS,
    SINK,
    Imports,
    PluginEntry,
    ReportedPlugin,
    RunningSource,
    ServicesControl,
    ServicesInit,
)
from .guarded import Broken, Guarded
from .importing import Importer
from .sink_calls import BlockingSink, SinkConnection

PROTOCOLS = {
    Hook.HEALTH_CHECK: HealthCheck,
    Hook.ADMISSION_CHECK: AdmissionCheck,
    Hook.PANEL: Panel,
    Hook.POD_SOURCE: RunningSource,
    Hook.VOLUME_DRIVER: VolumeDriver,
}


class ChildServices:
    """Imports the plugins and makes what they registered; implements `ServicesControl`."""

    def __init__(self, served: Served, sinks: SinkConnection | None) -> None:
        """`served`: gets the objects that the agent may call. `sinks`: connection to the agent for pod sources.

        `sinks` None: `init` is not called.
        """
        self._served = served
        self._sinks = sinks
        self.peer: Peer | None = None

    async def register(self, imports: Imports) -> tuple[ReportedPlugin, ...]:
        """Import the plugins of one distribution in a fork, and return what each registered."""
        _extend_path(imports.sys_path)
        importer = Importer(imports)
        return tuple(await importer.registered([_about(one) for one in imports.plugins]))

    async def init(self, init: ServicesInit) -> None:
        """Import the plugins and call the factories. A failure of one is the answer to each call of it."""
        assert self.peer is not None
        assert self._sinks is not None
        _extend_path(init.sys_path)
        parts = _host_parts(init, self.peer)
        found, problems = _registrations(init.plugins)
        for name, hook in init.hooks.items():
            registration = found.get(name)
            if registration is None or registration.hook.value != hook:
                problem = "; ".join(problems) or f"the installed plugin registers no {hook} {name!r}"
                error = Unavailable(f"{problem}; restart the agent after an update of the plugin")
                self._served.put(name, Broken(error), PROTOCOLS[Hook(hook)])
                continue
            made = Guarded(registration, BlockingSink(self._sinks, SINK + name))
            made.make(_settings(registration, init), RegistrationHost(registration, parts))
            self._served.put(name, made, PROTOCOLS[registration.hook])

    async def ping(self) -> None:
        """Do nothing: the answer shows the agent that the child's event loop runs."""


def _registrations(plugins: Iterable[PluginEntry]) -> tuple[dict[str, Registration], list[str]]:
    """Import the plugins; return what they registered, by name, and a sentence for each import that failed."""
    found: dict[str, Registration] = {}
    problems = []
    for one in plugins:
        candidate = load_candidate(_about(one))
        found.update({item.name: item for item in candidate.registrations})
        if candidate.about.reason:
            problems.append(candidate.about.reason)
    return found, problems


def _extend_path(more: Iterable[str]) -> None:
    sys.path[:] = [*sys.path, *(path for path in more if path not in sys.path)]


def _about(plugin: PluginEntry) -> LoadedPlugin:
    return LoadedPlugin(
        name=plugin.name,
        distribution=plugin.distribution,
        version=plugin.version,
        state=FAILED,
        source=plugin.value,
        made_for=plugin.made_for,
    )


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
        cluster=_remote_cluster(peer) if init.has_cluster else None,
        volume_plugin_directory=Path(init.volume_plugin_directory),
    )


def _remote_cluster(peer: Peer) -> ClusterObjects:
    """Return the agent's `ClusterObjects`. `follow` and `leave` are one-way messages, which arrive before later calls."""
    cluster: Any = remote_class(ClusterObjects)(lambda: peer, CLUSTER)

    def follow(pod: ObjectUser) -> None:
        peer.note(CLUSTER, "follow", (pod,))

    def leave(uid: PodUid) -> None:
        peer.note(CLUSTER, "leave", (uid,))

    cluster.follow, cluster.leave = follow, leave
    made: ClusterObjects = cluster
    return made


def main() -> None:
    """Run the child process; its arguments are the descriptors of its sockets."""
    descriptor, *more = map(int, sys.argv[1:])

    async def serving() -> None:
        sinks = SinkConnection(more[0]) if more else None
        await serve(descriptor, lambda served: ChildServices(served, sinks), ServicesControl)

    run_child(serving)


if __name__ == "__main__":
    main()
