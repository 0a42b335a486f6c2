"""Messages between the agent and a distribution's child process that are not calls of a plugin."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kubeletx.api import PodOutcome

from ..candidates import InstalledPlugin
from ..registrations import KINDS, Hook

CONTROL_CLASS = "kubeletx.plugins.isolated.child:ChildServices"
"""Control of the child program, see `kubeletx.runtimes.isolation.child`."""
CLUSTER = "cluster"
RECORDS = "records:"
SINK = "sink:"
MOST_DEADLINES = 3
"""Number of deadlines that an import gets while its process works, as on a busy node; a process that sleeps gets one."""


class ReportedItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a plugin registered, as plain values. `hook`: a registration's hook, or ``runtime``.

    `factory`, `settings`: names of the objects, as ``module:name``; empty if they cannot be imported by name.
    `has_settings`: the plugin registered a class of settings. The other fields are those of `RuntimeKind` and
    `Registration`.
    """

    hook: str
    name: str
    factory: str = ""
    settings: str = ""
    has_settings: bool = False
    workload_types: tuple[str, ...] = ()
    schemes: tuple[str, ...] = ()
    default_claim: bool = False
    parameters: tuple[str, ...] = ()
    period_seconds: float = 0.0
    fails_open: bool = False
    only_configured: bool = False
    title: str = ""
    sources: tuple[str, ...] = ()


class ReportedPlugin(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a plugin, as of `LoadedPlugin` and `Candidate`, with what it registered."""

    state: str
    reason: str = ""
    traceback: str = ""
    is_known: bool = False
    items: tuple[ReportedItem, ...] = ()


class Imports(msgspec.Struct, frozen=True, kw_only=True):
    """Argument of `ChildServices.register`.

    `seconds`: deadline of one import. `memory_bytes`: limit of the process in which it is made. `sections`, `origin`: as
    for `load_plugins`. `sys_path`: import path of the agent.
    """

    plugins: tuple[InstalledPlugin, ...]
    seconds: float
    memory_bytes: int
    sections: dict[str, Any] | None
    origin: str
    sys_path: list[str]


class ServicesInit(msgspec.Struct, frozen=True, kw_only=True):
    """Argument of `ChildServices.init`.

    `hooks`: registrations to make, by name, such as ``health-check``. `settings`: their settings as JSON values, by
    name; only of plugins that have settings. `root`: the agent's root directory. `volume_plugin_directory`: of
    executable volume drivers. `has_cluster`: the agent has a cluster that the child may read. `sys_path`: import path
    of the agent.
    """

    plugins: tuple[InstalledPlugin, ...]
    hooks: dict[str, str]
    settings: dict[str, Any]
    node_name: str
    root: str
    has_cluster: bool
    sys_path: list[str]
    volume_plugin_directory: str = ""


class WireSink(Protocol):
    """Calls of the child to the `Sink` of one pod source. The child's event loop waits for each answer."""

    async def set(self, pod: dict[str, Any]) -> PodOutcome: ...

    async def refuse(self, namespace: str, name: str, problem: str) -> PodOutcome: ...

    async def remove(self, namespace: str, name: str, *, grace_seconds: int | None) -> bool: ...

    async def synced(self) -> None: ...


class RunningSource(Protocol):
    """Pod source in the child, as the agent calls it: with a sink there that calls the agent."""

    async def run(self) -> None: ...


def wire_protocol(hook: Hook) -> type:
    """Return the protocol with which the agent calls what a plugin registered with `hook`."""
    return RunningSource if hook is Hook.POD_SOURCE else KINDS[hook].protocol
