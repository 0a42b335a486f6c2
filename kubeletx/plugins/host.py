"""`RegistrationHost`: implements `PluginHost` and `VolumeHost` of `kubeletx.api` for one registration.

`PluginHostParts` has what the hosts of all registrations share.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import msgspec

from kubeletx.api import BoundedThreadPool, Clock, ClusterObjects, EventSink

from .registrations import Hook, Registration

if TYPE_CHECKING:  # an agent without plugins does not load these
    from kubeletx.api import RecordKinds, Records
    from kubeletx.runtimes.isolation.process import ChildCgroup

P = ParamSpec("P")
R = TypeVar("R")

VOLUME_THREADS: Final = 16
"""Number of threads for blocking calls of a volume driver, which is called for many volumes at the same time."""
VOLUME_PATIENCE_SECONDS: Final = 10.0
"""Time for which such a call waits for a free thread."""


class PluginHostParts(msgspec.Struct, frozen=True, kw_only=True):
    """Values that the `PluginHost` objects of all plugin registrations share.

    `root`: the agent's root directory. `records`: returns the `Records` of one kind. `cluster`: access to the cluster's
    objects; None: the node is in no cluster.
    """

    node_name: str
    root: Path
    clock: Clock
    events: EventSink
    records: RecordKinds
    cluster: ClusterObjects | None = None
    child_cgroup: Callable[[str], ChildCgroup] | None = None
    """Returns the cgroup for the child process of a distribution; None: children have no cgroups of their own."""
    volume_plugin_directory: Path = Path()
    """Directory of executable volume drivers (``--volume-plugin-dir``)."""


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
        return self._name

    @property
    def node_name(self) -> str:
        return self._parts.node_name

    @property
    def state_directory(self) -> Path:
        """Directory ``<root>/plugins/<name>`` for the registration's files, made on first use with mode 0700."""
        path = self._parts.root / "plugins" / self._name
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path

    @property
    def plugins_directory(self) -> Path:
        return self._parts.root / "plugins"

    @property
    def volume_plugin_directory(self) -> Path:
        return self._parts.volume_plugin_directory

    @property
    def clock(self) -> Clock:
        return self._parts.clock

    @property
    def events(self) -> EventSink:
        return self._parts.events

    @property
    def records(self) -> Records:
        """This registration's records in the state database, of kind ``plugin.<name>``."""
        return self._parts.records(f"plugin.{self._name}")

    @property
    def cluster(self) -> ClusterObjects | None:
        return self._parts.cluster

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await self._threads.run(function, *args, **kwargs)

    def close(self) -> None:
        """Let idle threads end; does not wait for threads that are blocked."""
        self._threads.close()
