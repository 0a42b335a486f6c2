"""Volume drivers: a plugin makes volumes of pods available on the node.

A driver serves sources of volumes: fields of a Volume or PersistentVolume such as ``flexVolume`` or ``csi``, or one
driver name within such a field, as ``flexVolume:example.com/ramdisk``. For each volume of a pod the agent calls
`VolumeDriver.prepare` before the pod's sandbox is created, and `VolumeDriver.release` after its containers have ended.

    written to the journal ─► prepare ─► fsGroup ─► containers run (stats, expand) ─► release ─► removed from it

The agent records each volume in the pod's journal before it calls the driver. So it can release the volume after a
crash, a restart, or the loss of the pod's manifest, and even if `prepare` never returned. Calls for one volume are
made one after the other, calls for different volumes at the same time. Each call has a deadline. A call that misses it
is cancelled, and the volume is not called again before that call has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar

import msgspec

from .errors import Unsupported
from .identity import PodUid
from .plugin_host import PluginHost
from .specs import SourceKind

P = ParamSpec("P")
R = TypeVar("R")


class VolumePod(msgspec.Struct, frozen=True, kw_only=True):
    """Pod that uses a volume."""

    uid: PodUid
    name: str
    namespace: str
    service_account: str = "default"


class VolumeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One volume of one pod, as a `VolumeDriver` gets it. Its repr does not show secrets.

    `name`: name of the volume in the pod. `source`: field of the volume or persistent volume that describes it, such
    as ``flexVolume``. `driver`: driver name in that field; empty if the field has none. `options`: the driver's
    options; for a source without options of its own (such as ``rbd``), the other fields of the source.
    """

    pod: VolumePod
    name: str
    source: str
    target: str
    """Absolute path at which the volume must be available: an existing directory below the pod's directory.

    For a block volume nothing exists there; its directory does.
    """
    driver: str = ""
    persistent_volume: str = ""
    """Name of the PersistentVolume; empty for a volume that is written in the pod itself."""
    persistent_volume_uid: str = ""
    """UID of the PersistentVolume: another one of the same name has another UID. Empty if there is none."""
    claim: str = ""
    """Name of the PersistentVolumeClaim in the pod's namespace; empty if there is none."""
    options: dict[str, Any] = {}
    fs_type: str = ""
    """File system that the volume should have; empty: the driver's default."""
    read_only: bool = False
    is_block: bool = False
    """The pod uses the raw device (volumeMode Block)."""
    access_modes: tuple[str, ...] = ()
    """Access modes of the PersistentVolume, such as ReadWriteOnce; empty if there is none."""
    mount_options: tuple[str, ...] = ()
    capacity_bytes: int = 0
    """Capacity of the PersistentVolume; 0: unknown."""
    fs_group: int | None = None
    """Group of the volume's files, from the pod's security context; None: they keep theirs."""
    fs_group_change_policy: str = ""
    secrets: dict[str, bytes] = {}
    """Content of the secret that the source names. Only `prepare` gets it; it is never stored or logged."""

    @property
    def volume_name(self) -> str:
        """Name of the PersistentVolume, or else the name in the pod."""
        return self.persistent_volume or self.name

    @property
    def served_by(self) -> str:
        """The source with its driver, such as ``flexVolume:example.com/ramdisk``."""
        return f"{self.source}:{self.driver}" if self.driver else self.source

    def __repr__(self) -> str:
        pod = f"{self.pod.namespace}/{self.pod.name}"
        return f"VolumeRequest({pod}, {self.name}, {self.served_by}, secrets={sorted(self.secrets)})"


class VolumeCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """Capabilities of a driver for one prepared volume.

    `fs_group`: True: the agent applies the pod's fsGroup to the files. False: the files keep their group, or the
    driver has applied it. `selinux_relabel`: the volume's files may be relabelled. `stats`, `expand`: the methods of
    these names are implemented.
    """

    fs_group: bool = True
    selinux_relabel: bool = True
    stats: bool = False
    expand: bool = False


class ReadyVolume(msgspec.Struct, frozen=True, kw_only=True):
    """Result of `VolumeDriver.prepare`: the volume is available on the node.

    `path`: absolute path of its directory or block device; empty: `VolumeRequest.target`. `kind`: kind of what is
    there. `read_only`: it can only be read, whatever the request says. `device`: device behind the volume, for users
    and for ``volumesAttached`` of the node's status; empty if there is none.
    """

    path: str = ""
    kind: SourceKind = SourceKind.DIRECTORY
    read_only: bool = False
    device: str = ""
    capabilities: VolumeCapabilities = VolumeCapabilities()


class VolumeStats(msgspec.Struct, frozen=True, kw_only=True):
    """Use of one volume. Sizes in bytes; None: unknown."""

    capacity_bytes: int | None = None
    used_bytes: int | None = None
    available_bytes: int | None = None
    inodes: int | None = None
    inodes_used: int | None = None
    inodes_free: int | None = None


class VolumeHost(PluginHost, Protocol):
    """Services of the agent for one volume driver: everything in `PluginHost`, more threads, and two directories."""

    @property
    def plugins_directory(self) -> Path:
        """Directory ``plugins`` below the agent's root directory, where drivers mount volumes once for all pods."""
        ...

    @property
    def volume_plugin_directory(self) -> Path:
        """Directory of executable volume drivers: ``--volume-plugin-dir``, ``volumePluginDir``."""
        ...

    async def blocking(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on a thread as `PluginHost.blocking` does, but wait up to 10 seconds for a free thread.

        A driver is called for many volumes at the same time, so that all its threads may be busy for a moment.
        """
        ...


class VolumeDriver(Protocol):
    """Driver that makes volumes available on this node. Every call may be repeated."""

    async def open(self) -> None:
        """Get ready; the agent calls it once, before all other calls.

        It is called at the start of the agent, or, for a driver in a child process, with the first volume. If it raises,
        the agent logs the error and calls it again before the next call of another method.
        """
        ...

    async def close(self) -> None:
        """End the driver's own tasks, at the agent's end. Prepared volumes stay as they are."""
        ...

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Make the volume available and return where it is; succeeds if it already is available.

        Raises InvalidPod if the volume can never be prepared as the pod's manifest is, and Unavailable or TimedOut if
        a retry may help. A failed call leaves nothing behind that `release` would not remove. The agent calls
        `release` for it when the pod ends.
        """
        ...

    async def release(self, request: VolumeRequest) -> None:
        """Undo `prepare`; succeeds if nothing is there, also if `prepare` was never called or has failed.

        `request` is the request of `prepare`, without its secrets. If the pod's journal is lost, only pod UID, name,
        source, driver, target, and for a PersistentVolume its name are known. Raises Unavailable while the volume is
        in use; the agent calls it again.
        """
        ...

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        """Measure the prepared volume. Called only with `VolumeCapabilities.stats`."""
        ...

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        """Make the file system of the prepared volume at least `size_bytes` large; return its new size in bytes.

        Its device has that size already. Called only with `VolumeCapabilities.expand`; succeeds if it is large enough.
        """
        ...


class BaseVolumeDriver:
    """Optional base class of a `VolumeDriver`: implements all methods but `prepare` and `release`."""

    def __init__(self, settings: Any, host: VolumeHost) -> None:
        """Keep the arguments that a `VolumeDriverFactory` gets. No I/O."""
        self.settings = settings
        self.host = host

    async def open(self) -> None:
        """Do nothing. Override it to start tasks or to connect to a backend."""

    async def close(self) -> None:
        """Do nothing. Override it to end tasks and to disconnect."""

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        """Raise Unsupported. Override it, and return `VolumeCapabilities.stats` from `prepare`."""
        raise Unsupported(f"volume {request.name}: {request.served_by} does not measure volumes")

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        """Raise Unsupported. Override it, and return `VolumeCapabilities.expand` from `prepare`."""
        raise Unsupported(f"volume {request.name}: {request.served_by} does not expand volumes")


VolumeDriverFactory = Callable[[Any, VolumeHost], VolumeDriver]
"""Function from the plugin's settings (None if there are none) and its `VolumeHost` to the driver. Must not do I/O."""
