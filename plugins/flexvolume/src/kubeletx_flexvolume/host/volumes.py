"""`FlexVolumes`: a `kubeletx.api.VolumeDriver` that calls executable FlexVolume drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Final, NamedTuple

from kubeletx.api import (
    BoundedThreadPool,
    KubeletxError,
    ReadyVolume,
    SourceKind,
    Unavailable,
    Unsupported,
    VolumeCapabilities,
    VolumeHost,
    VolumeRequest,
    VolumeStats,
    WhenFull,
)
from kubeletx.api.names import Event
from kubeletx.linux.json_files import JsonFiles
from kubeletx.linux.mounts import MountPoint, read_mounts

from ..config import FlexSettings
from ..errors import file_error, volume_error
from .calls import VolumeCalls
from .drivers import FlexDrivers, base_environment
from .entries import FlexEntry
from .journal import FlexJournal, entry_files
from .node import Node, RunProgram
from .options import check_request, has_valid_names
from .processes import Processes
from .status import FILE_NAME, StatusFile
from .steps import VolumeSteps

_STATS_SECONDS: Final = 8.0
_THREADS: Final = 2


class _Parts(NamedTuple):
    """Objects that exist while the driver is open."""

    drivers: FlexDrivers
    journal: FlexJournal
    node: Node
    steps: VolumeSteps
    status: StatusFile
    writing: asyncio.Task[None]
    threads: tuple[BoundedThreadPool, ...]


class FlexVolumes:
    """Prepares volumes of source ``flexVolume`` with the drivers of the node. Implements `VolumeDriver`."""

    def __init__(
        self,
        settings: FlexSettings | None,
        host: VolumeHost,
        *,
        run: RunProgram | None = None,
        table: Callable[[], tuple[MountPoint, ...]] = read_mounts,
        entries: JsonFiles[FlexEntry] | None = None,
    ) -> None:
        """`settings` None: the defaults. `run` None: the programs of the node are run. `table`: reads the mounts.

        `entries`: files of the journal; None: those in the state directory.
        """
        self._settings = settings or FlexSettings()
        self._host = host
        self._run = run
        self._table = table
        self._entries = entries or entry_files(host.state_directory / "volumes")
        self._parts: _Parts | None = None

    async def open(self) -> None:
        """Find the drivers, and end calls that an earlier agent process has left. Raises KubeletxErrors."""
        if self._parts is not None:
            return
        host, state = self._host, self._host.state_directory
        files = _threads("files")
        volumes = _threads("volumes")
        processes = Processes(state / "running")
        run = self._run or partial(processes.run, environment={**base_environment(), "LC_ALL": "C"})
        node = Node(run, files.finish, volumes.run, self._table)
        journal = FlexJournal(self._entries, files.finish)
        status = StatusFile(state / FILE_NAME, files.finish)
        drivers = FlexDrivers(
            host.volume_plugin_directory,
            self._settings,
            host.clock,
            blocking=files.finish,
            processes=processes,
            on_change=status.mark,
        )
        steps = VolumeSteps(
            drivers=drivers,
            journal=journal,
            node=node,
            calls=VolumeCalls(journal, node),
            plugins_directory=PurePosixPath(host.plugins_directory),
            node_name=host.node_name,
        )
        try:
            await processes.open()
        except OSError as error:
            raise file_error("cannot use the plugin's state directory", error) from error
        await journal.load()
        await drivers.open()
        writing = asyncio.create_task(
            status.run(lambda: [driver.status for driver in drivers]), name="flexvolume status"
        )
        self._parts = _Parts(drivers, journal, node, steps, status, writing, (files, volumes))

    async def close(self) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            parts.writing.cancel()
            await asyncio.gather(parts.writing, return_exceptions=True)
            await parts.drivers.close()
            for pool in parts.threads:
                pool.close()

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        check_request(request)
        parts = self._opened()
        try:
            entry, driver = await parts.steps.prepare(request, self._until())
        finally:
            parts.status.mark()
        capabilities = driver.capabilities
        if request.is_block:
            return ReadyVolume(
                path=request.target,
                kind=SourceKind.BLOCK_DEVICE,
                read_only=request.read_only,
                capabilities=VolumeCapabilities(fs_group=False, selinux_relabel=False),
            )
        return ReadyVolume(
            path=request.target,
            read_only=request.read_only,
            device=entry.device,
            capabilities=VolumeCapabilities(
                fs_group=capabilities.fs_group,
                selinux_relabel=capabilities.selinux_relabel,
                stats=capabilities.supports_metrics,
                expand=True,
            ),
        )

    async def release(self, request: VolumeRequest) -> None:
        if not has_valid_names(request):  # such a volume was never prepared
            return
        parts = self._opened()
        try:
            await parts.steps.release(request, self._until())
        except KubeletxError as error:
            if error.reason == Event.FAILED_MOUNT:
                error.reason = Event.FAILED_KILL_POD
            raise
        finally:
            parts.status.mark()

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        parts = self._opened()
        if parts.drivers.lacks_metrics(request.driver):
            raise volume_error(
                Unsupported, request.volume_name, f"driver {request.driver} lacks capability supportsMetrics"
            )
        entry = parts.journal.find(request.target)
        use = entry.uses[request.target] if entry is not None else None
        if use is not None and use.is_mount and await parts.node.find_mount(request.target) is None:
            raise volume_error(Unavailable, request.volume_name, f"{request.target} is not mounted any more")
        return await parts.node.measure(request.target, asyncio.get_running_loop().time() + _STATS_SECONDS)

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        check_request(request)
        parts = self._opened()
        try:
            return await parts.steps.expand(request, size_bytes, self._until())
        finally:
            parts.status.mark()

    def _opened(self) -> _Parts:
        if self._parts is None:
            raise Unavailable("the FlexVolume host is not open", reason=Event.FAILED_MOUNT)
        return self._parts

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._settings.timeout_seconds


def _threads(name: str) -> BoundedThreadPool:
    """Return threads on which calls wait for their turn. Volumes that hang have other threads than the node's files."""
    return BoundedThreadPool(f"flexvolume {name}", _THREADS, when_full=WhenFull.WAIT, owner="volume driver")
