"""Messages between the agent and a distribution's child process that are not calls of a plugin."""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from kubeletx.api import PodOutcome

CLUSTER = "cluster"
RECORDS = "records:"
SINK = "sink:"


class PluginEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin of the distribution. `value`: its entry point, as ``module`` or ``module:object``."""

    name: str
    value: str
    distribution: str
    version: str


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

    async def init(self, init: ServicesInit) -> None:
        """Import the plugins and call the factories; this is the agent's first call to a new child."""
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
