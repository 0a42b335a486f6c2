"""`FakeHost`, `FakePluginHost` and `FakeVolumeHost`: fakes of the objects through which plugins use the agent, for tests of plugins.

Events are kept in `sink.recorded`, blocking calls run in a thread, and the test provides the state directory
(pytest's ``tmp_path``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

from kubeletx.api import (
    Clock,
    ClusterObjects,
    Endpoint,
    EventSink,
    NotFound,
    ObjectRef,
    PodNetwork,
    Records,
    RuntimeName,
)

from .clock import FakeClock
from .fake_records import FakeRecords

P = ParamSpec("P")
R = TypeVar("R")


class Recorded(NamedTuple):
    """One event that a plugin recorded."""

    ref: ObjectRef
    type: str
    reason: str
    message: str


class FakeEventSink:
    """An `EventSink` that keeps all events in `recorded`, in order."""

    def __init__(self) -> None:
        self.recorded: list[Recorded] = []

    def record(self, ref: ObjectRef, *, type: str, reason: str, message: str) -> None:
        """Add the event to `recorded`."""
        self.recorded.append(Recorded(ref, type, reason, message))

    def reasons(self, name: str = "") -> list[str]:
        """Return the reasons of the recorded events, in order.

        `name`: only events about the object of this name; empty: all.
        """
        return [event.reason for event in self.recorded if name in ("", event.ref.name)]


class FakeHost:
    """Implements `kubeletx.api.Host`, the agent as a runtime plugin sees it, for one runtime under test."""

    def __init__(
        self,
        state_directory: Path,
        *,
        clock: Clock | None = None,
        pod_network: PodNetwork | None = None,
        agent_id: str = "agent-under-test",
        node_name: str = "node-1",
    ) -> None:
        """`state_directory`: must exist. `clock` None: a new `FakeClock`. `pod_network` None: there is none."""
        self.agent_id = agent_id
        self.node_name = node_name
        self.state_directory = state_directory
        self.clock: Clock = clock or FakeClock()
        self.sink = FakeEventSink()
        self.pod_network = pod_network

    @property
    def events(self) -> EventSink:
        """The event sink; tests read `sink.recorded`."""
        return self.sink

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in a thread and return its result."""
        return await asyncio.to_thread(function, *args, **kwargs)


class FakePluginHost:
    """Implements `kubeletx.api.PluginHost`, the agent as other plugins see it, for one plugin object under test."""

    def __init__(
        self,
        state_directory: Path,
        *,
        name: str = "under-test",
        clock: Clock | None = None,
        records: Records | None = None,
        cluster: ClusterObjects | None = None,
        node_name: str = "node-1",
    ) -> None:
        """`state_directory`: must exist. `clock` None: a new `FakeClock`.

        `records` None: new `FakeRecords`. `cluster` None: the node has no cluster.
        """
        self.name = name
        self.node_name = node_name
        self.state_directory = state_directory
        self.clock: Clock = clock or FakeClock()
        self.sink = FakeEventSink()
        self.records: Records = records or FakeRecords()
        self.cluster = cluster

    @property
    def events(self) -> EventSink:
        """The event sink; tests read `sink.recorded`."""
        return self.sink

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in a thread and return its result."""
        return await asyncio.to_thread(function, *args, **kwargs)


class FakeRemedyHost:
    """Implements `kubeletx.api.RemedyHost`, the controller as a remedy sees it, for one remedy under test."""

    def __init__(
        self,
        *,
        name: str = "under-test",
        clock: Clock | None = None,
        secrets: Mapping[str, Mapping[str, bytes]] | None = None,
    ) -> None:
        """`clock` None: a new `FakeClock`. `secrets`: data by name of the Secret."""
        self.name = name
        self.clock: Clock = clock or FakeClock()
        self._secrets = secrets or {}

    async def secret(self, name: str) -> Mapping[str, bytes]:
        """Return the data of a Secret. Raises NotFound."""
        if name not in self._secrets:
            raise NotFound(f"secrets {name!r} not found")
        return self._secrets[name]

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in a thread and return its result."""
        return await asyncio.to_thread(function, *args, **kwargs)


class FakeVolumeHost(FakePluginHost):
    """Implements `kubeletx.api.VolumeHost`, the agent as a volume driver sees it, for one driver under test."""

    @property
    def plugins_directory(self) -> Path:
        """Directory ``plugins`` below the state directory, made at its first use."""
        return _made(self.state_directory / "plugins")

    @property
    def volume_plugin_directory(self) -> Path:
        """Directory ``volume-plugins`` below the state directory, made at its first use."""
        return _made(self.state_directory / "volume-plugins")


def _made(path: Path) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    return path


def endpoint(
    url: str, *, name: str = "under-test", workload_type: str = "container", kind: str = ""
) -> Endpoint:
    """Return an `Endpoint` as the agent passes it to the factory of a runtime plugin."""
    return Endpoint(name=RuntimeName(name), workload_type=workload_type, url=url, kind=kind)
