"""`FlexVolumes`: a `kubeletx.api.VolumeDriver` that calls executable FlexVolume drivers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

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
from .drivers import FlexDrivers, base_environment
from .journal import FlexEntry, FlexJournal, entry_files
from .node import Node, RunProgram
from .options import check_request, has_valid_names
from .processes import Processes
from .status import FILE_NAME, StatusFile
from .steps import VolumeSteps

_STATS_SECONDS: Final = 8.0
_THREADS: Final = 2


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
        settings, state = settings or FlexSettings(), host.state_directory
        self._seconds = settings.timeout_seconds
        self._files, self._slow = _threads("files"), _threads("volumes")
        self._processes = Processes(state / "running")
        self._status = StatusFile(state / FILE_NAME, self._files.finish)
        self._journal = FlexJournal(entries or entry_files(state / "volumes"), self._files.finish)
        tools = partial(self._processes.run, environment={**base_environment(), "LC_ALL": "C"})
        self._node = Node(run or tools, self._files.finish, self._slow.run, table)
        self._drivers = FlexDrivers(
            host,
            settings,
            blocking=self._files.finish,
            processes=self._processes,
            on_change=self._status.mark,
        )
        self._steps = VolumeSteps(
            drivers=self._drivers,
            journal=self._journal,
            node=self._node,
            host=host,
        )
        self._writing: asyncio.Task[None] | None = None
        """Task that writes the status while the driver is open."""

    async def open(self) -> None:
        """Find the drivers, and end calls that an earlier agent process has left. Raises KubeletxErrors."""
        if self._writing is not None:
            return
        try:
            await self._processes.open()
        except OSError as error:
            raise file_error("cannot use the plugin's state directory", error) from error
        await self._journal.load()
        await self._drivers.open()
        self._writing = asyncio.create_task(
            self._status.run(lambda: [driver.status for driver in self._drivers]), name="flexvolume status"
        )

    async def close(self) -> None:
        if self._writing is not None:
            writing, self._writing = self._writing, None
            writing.cancel()
            await asyncio.gather(writing, return_exceptions=True)
            await self._steps.close()
            await self._drivers.close()
            self._files.close()
            self._slow.close()

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        check_request(request)
        self._check_open()
        try:
            entry, driver = await self._steps.prepare(request, self._until())
        finally:
            self._status.mark()
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
        self._check_open()
        try:
            await self._steps.release(request, self._until())
        except KubeletxError as error:
            if error.reason == Event.FAILED_MOUNT:
                error.reason = Event.FAILED_KILL_POD
            raise
        finally:
            self._status.mark()

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        self._check_open()
        if self._drivers.lacks_metrics(request.driver):
            raise volume_error(
                Unsupported, request.volume_name, f"driver {request.driver} lacks capability supportsMetrics"
            )
        entry = self._journal.find(request.target)
        use = entry.uses[request.target] if entry is not None else None
        if use is not None and use.is_mount and await self._node.find_mount(request.target) is None:
            raise volume_error(Unavailable, request.volume_name, f"{request.target} is not mounted any more")
        return await self._node.measure(request.target, asyncio.get_running_loop().time() + _STATS_SECONDS)

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        check_request(request)
        self._check_open()
        try:
            return await self._steps.expand(request, size_bytes, self._until())
        finally:
            self._status.mark()

    def _check_open(self) -> None:
        if self._writing is None:
            problem = (
                "the FlexVolume plugin is not open: its start has failed or not ended; see the agent's log"
            )
            raise Unavailable(problem, reason=Event.FAILED_MOUNT)

    def _until(self) -> float:
        return asyncio.get_running_loop().time() + self._seconds


def _threads(name: str) -> BoundedThreadPool:
    """Return threads on which calls wait for their turn. Volumes that hang have other threads than the node's files."""
    return BoundedThreadPool(f"flexvolume {name}", _THREADS, when_full=WhenFull.WAIT, owner="volume driver")
