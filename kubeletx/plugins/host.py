"""`RegistrationHost`: implements `PluginHost` and `VolumeHost` of `kubeletx.api` for one registration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec, TypeVar

from kubeletx.api import BoundedThreadPool, Clock, ClusterObjects, EventSink, Records

from .host_parts import PluginHostParts
from .registrations import Hook, Registration

P = ParamSpec("P")
R = TypeVar("R")

VOLUME_THREADS: Final = 16
"""Number of threads for blocking calls of a volume driver, which is called for many volumes at the same time."""
VOLUME_PATIENCE_SECONDS: Final = 10.0
"""Time for which such a call waits for a free thread."""


class RegistrationHost:
    """Services of the agent that the code of one plugin registration may use. Implements `kubeletx.api.VolumeHost`."""

    def __init__(self, registration: Registration, parts: PluginHostParts) -> None:
        self._name = registration.name
        self._parts = parts
        if registration.hook is Hook.VOLUME_DRIVER:
            self._threads = BoundedThreadPool(
                self._name, VOLUME_THREADS, owner="plugin", patience_seconds=VOLUME_PATIENCE_SECONDS
            )
        else:
            self._threads = BoundedThreadPool(self._name, owner="plugin")

    @property
    def name(self) -> str:
        """The name that the plugin registered."""
        return self._name

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self._parts.node_name

    @property
    def state_directory(self) -> Path:
        """Directory ``<root>/plugins/<name>`` for the registration's files, made on first use with mode 0700."""
        path = self._parts.root / "plugins" / self._name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    @property
    def plugins_directory(self) -> Path:
        """Directory ``<root>/plugins``."""
        return self._parts.root / "plugins"

    @property
    def volume_plugin_directory(self) -> Path:
        """Directory of executable volume drivers."""
        return self._parts.volume_plugin_directory

    @property
    def clock(self) -> Clock:
        """Clock of the agent; tests replace it."""
        return self._parts.clock

    @property
    def events(self) -> EventSink:
        """Sink that records Kubernetes events."""
        return self._parts.events

    @property
    def records(self) -> Records:
        """This registration's records in the state database, of kind ``plugin.<name>``."""
        return self._parts.records(f"plugin.{self._name}")

    @property
    def cluster(self) -> ClusterObjects | None:
        """Access to API objects of the cluster; None if the node is in no cluster."""
        return self._parts.cluster

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run a blocking call on a thread of this registration, and return its result.

        Raises Unavailable if all threads of the registration are blocked: at once, for a volume driver after
        `VOLUME_PATIENCE_SECONDS`.
        """
        return await self._threads.run(function, *args, **kwargs)

    def close(self) -> None:
        """Let idle threads end; does not wait for threads that are blocked."""
        self._threads.close()
