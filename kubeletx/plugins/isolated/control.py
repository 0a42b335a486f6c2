"""Messages between the agent and a distribution's child process that are not calls of a plugin."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kubeletx.api import PodOutcome

CLUSTER = "cluster"
RECORDS = "records:"
SINK = "sink:"


class PluginEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin of the distribution. `value`: its entry point, as ``module`` or ``module:object``.

    `made_for`: as of `LoadedPlugin`.
    """

    name: str
    value: str
    distribution: str
    version: str
    made_for: str = ""


class ReportedItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that a plugin registered, as plain values. `hook`: that of a registration, or ``runtime``.

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
    """Argument of `ServicesControl.register`.

    `seconds`: deadline of one import. `memory_bytes`: limit of the process in which it is made. `sections`, `origin`: as for `load_plugins`. `sys_path`: import path of the agent.
    """

    plugins: tuple[PluginEntry, ...]
    seconds: float
    memory_bytes: int
    sections: dict[str, Any] | None
    origin: str
    sys_path: list[str]


class ServicesInit(msgspec.Struct, frozen=True, kw_only=True):
    """Argument of `ServicesControl.init`.

    `hooks`: registrations to make, by name, such as ``health-check``. `settings`: their settings as JSON values, by name; without those that have none.
    `root`: the agent's root directory. `volume_plugin_directory`: of executable volume drivers. `has_cluster`: the agent
    has a cluster that the child may read. `sys_path`: import path of the agent.
    """

    plugins: tuple[PluginEntry, ...]
    hooks: dict[str, str]
    settings: dict[str, Any]
    node_name: str
    root: str
    has_cluster: bool
    sys_path: list[str]
    volume_plugin_directory: str = ""


class ServicesControl(Protocol):
    """Calls of the agent that control the child process itself."""

    async def register(self, imports: Imports) -> tuple[ReportedPlugin, ...]:
        """Import the plugins of one distribution in a fork, call their hooks, and return what each registered."""
        ...

    async def init(self, init: ServicesInit) -> None:
        """Import the plugins and call the factories; the agent calls it before it calls what they make."""
        ...

    async def ping(self) -> None:
        """Do nothing: the answer shows that the child's event loop runs."""
        ...


class WireSink(Protocol):
    """Calls of the child to the sink of one pod source. The child's event loop waits for each answer."""

    async def set(self, pod: dict[str, Any]) -> PodOutcome:
        """Call `PodSourceSink.set`."""
        ...

    async def refuse(self, namespace: str, name: str, problem: str) -> PodOutcome:
        """Refuse a pod that is not JSON; `problem` says why."""
        ...

    async def remove(self, namespace: str, name: str, grace_seconds: int | None) -> bool:
        """Call `PodSourceSink.remove`."""
        ...

    async def synced(self) -> None:
        """Call `PodSourceSink.synced`."""
        ...


class RunningSource(Protocol):
    """Pod source in the child, as the agent calls it."""

    async def run(self) -> None:
        """Run the source with a sink that calls the agent."""
        ...
