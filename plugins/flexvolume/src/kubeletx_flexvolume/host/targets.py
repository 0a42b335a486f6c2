"""`PodTargets`: mounts a volume for one pod, and unmounts it: the driver's ``mount`` and ``unmount``.

An unmount that the driver answers with a failure, or without a JSON object, counts as done if nothing is mounted at the
target, and the driver had not mounted it without a mount point (as drivers do that only write files). A success counts
only if nothing is mounted there any more.
"""

from __future__ import annotations

import structlog
from msgspec.structs import replace

from kubeletx.api import Unavailable, VolumeRequest

from ..errors import BadAnswer, DriverFailed, DriverMissing, volume_error
from ..mounts import Mounts
from .driver import Command, FlexDriver
from .entries import FlexEntry, UseState
from .journal import FlexJournal
from .node import Node
from .options import encode_options, mount_options

log = structlog.get_logger(__name__)


class PodTargets:
    """The targets of all pods. Callers hold the lock of the entry's key."""

    def __init__(self, journal: FlexJournal, node: Node) -> None:
        self._journal = journal
        self._node = node

    async def mount(
        self, entry: FlexEntry, request: VolumeRequest, driver: FlexDriver, until: float
    ) -> FlexEntry:
        """Mount the volume at the request's target, unless it is mounted; return the new entry."""
        target = request.target
        use = entry.uses[target]
        if await self._node.find_mount(target) is not None:
            if use.state in (UseState.WAITING, UseState.MOUNTED):
                return await self._mounted(entry, target, is_mount=True)
            await self.unmount(entry, target, driver, until)  # a call that a crash has interrupted
        before = entry
        entry = await self._journal.put(
            entry.with_use(replace(use, state=UseState.MOUNTING, is_mount=None, read_only=request.read_only))
        )
        await self._node.make_directory(target.rpartition("/")[0] if request.is_block else target)
        arguments = (target, encode_options(mount_options(request)))
        try:
            reply = await driver.call(
                Command.MOUNT, arguments, until=until, key=entry.key, secrets=request.secrets
            )
        except DriverMissing:
            await self._journal.put(before)
            raise
        if reply is None:
            await self._bind(entry, request, until)
        is_mount = await self._node.find_mount(target) is not None
        return await self._mounted(entry, target, is_mount=is_mount)

    async def unmount(self, entry: FlexEntry, target: str, driver: FlexDriver, until: float) -> None:
        """Unmount the volume from a target, and remove the target's directory if it is empty."""
        is_mount = await self._node.find_mount(target) is not None
        if is_mount or await self._node.exists(target):
            await self._call_unmount(entry, target, driver, until)
        if await self._node.find_mount(target) is not None:
            raise volume_error(
                Unavailable,
                entry.volume,
                f"driver {entry.driver} answered that {target} is unmounted, but it still is a mount point; "
                "it is tried again",
            )
        await self._node.remove_directory(target)

    async def _call_unmount(self, entry: FlexEntry, target: str, driver: FlexDriver, until: float) -> None:
        try:
            reply = await driver.call(Command.UNMOUNT, (target,), until=until, key=entry.key)
        except (DriverFailed, BadAnswer) as error:
            has_files = entry.uses[target].is_mount is False
            if has_files or await self._node.find_mount(target) is not None:
                raise
            log.warning("Ignored a failed unmount, nothing is mounted", volume=entry.volume, err=str(error))
            return
        if reply is None:
            await Mounts(self._node.programs(entry.volume, target, until)).unmount(target)

    async def _mounted(self, entry: FlexEntry, target: str, *, is_mount: bool) -> FlexEntry:
        use = replace(entry.uses[target], state=UseState.MOUNTED, is_mount=is_mount)
        return await self._journal.put(entry.with_use(use))

    async def _bind(self, entry: FlexEntry, request: VolumeRequest, until: float) -> None:
        """Bind the volume from its directory of all pods, as the kubelet does for a driver without ``mount``."""
        if not entry.attach:
            raise volume_error(
                Unavailable,
                entry.volume,
                f"driver {entry.driver} supports neither attach nor mount; install one that does",
            )
        if await self._node.find_mount(entry.global_directory) is None:
            raise volume_error(
                Unavailable,
                entry.volume,
                f"driver {entry.driver} mounted nothing at {entry.global_directory}, so that the pod would write to the "
                "node's own disk; the driver must support mount, or mountdevice, or name a device",
            )
        mounts = Mounts(self._node.programs(entry.volume, request.target, until))
        await mounts.bind(entry.global_directory, request.target, read_only=request.read_only)
