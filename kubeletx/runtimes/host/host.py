"""`RuntimeHost`: implements `kubeletx.api.Host`, one object per runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

import msgspec

from kubeletx.api import BoundedThreadPool, Clock, EventSink, PodNetwork, RuntimeName

P = ParamSpec("P")
R = TypeVar("R")


class HostParts(msgspec.Struct, frozen=True, kw_only=True):
    """Values and objects that the `RuntimeHost` objects of all runtimes share.

    `root`: the agent's root directory. `pod_network`: the node's CNI network; None if it has none.
    """

    agent_id: str
    node_name: str
    root: Path
    clock: Clock
    events: EventSink
    pod_network: PodNetwork | None = None


class RuntimeHost:
    """Implements `kubeletx.api.Host` for the runtime `name`."""

    def __init__(self, name: RuntimeName, parts: HostParts) -> None:
        self._name = name
        self._parts = parts
        self._threads = BoundedThreadPool(name)

    @property
    def agent_id(self) -> str:
        return self._parts.agent_id

    @property
    def node_name(self) -> str:
        return self._parts.node_name

    @property
    def state_directory(self) -> Path:
        """Directory ``<root>/runtimes/<name>``, made on first use with mode 0700."""
        path = self._parts.root / "runtimes" / self._name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    @property
    def clock(self) -> Clock:
        return self._parts.clock

    @property
    def events(self) -> EventSink:
        return self._parts.events

    @property
    def pod_network(self) -> PodNetwork | None:
        return self._parts.pod_network

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._threads.run(function, *args, **kwargs)

    def close(self) -> None:
        """Let this runtime's idle threads end."""
        self._threads.close()
