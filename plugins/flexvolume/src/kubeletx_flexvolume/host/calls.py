"""`VolumeCalls`: the driver's calls for one volume, and the generic way for those that it does not support.

    attach ─► waitforattach ─► mountdevice ─► mount        unmount ─► unmountdevice ─► detach

The last pod's release takes the device down. A pod counts as a user if the journal has a use of it, or the mount table
shows the volume in its directory, so that a lost journal never takes a device away from a running pod.

An unmount that the driver answers with a failure, or without a JSON object, counts as done if nothing is mounted at the
target, and the driver had not mounted it without a mount point (as drivers do that only write files). A success counts
only if nothing is mounted there any more.
"""

from __future__ import annotations

import asyncio
import math
from functools import partial

import structlog
from msgspec.structs import replace

from kubeletx.api import TimedOut, Unavailable, Unsupported, VolumeRequest

from ..device import DEFAULT_FS_TYPE, Device
from ..errors import BadAnswer, DriverFailed, DriverMissing, volume_error
from ..mounts import Mounts
from .driver import Command, FlexDriver
from .journal import DeviceStage, FlexEntry, FlexJournal, UseState
from .node import Node
from .options import encode_options, fingerprint, mount_options, volume_options

log = structlog.get_logger(__name__)

_MAY_BE_MOUNTED = (DeviceStage.MOUNTING, DeviceStage.MOUNTED, DeviceStage.UNMOUNTING)


class VolumeCalls:
    """Calls for the devices of volumes, and for the targets of pods. Callers hold the lock of the entry's key."""

    def __init__(self, journal: FlexJournal, node: Node) -> None:
        self._journal = journal
        self._node = node
        self.working: dict[str, asyncio.Task[tuple[FlexEntry, str]]] = {}
        """Checks and formats of devices that run, by key. They may outlast their calls: half a format is worse than a late one."""

    async def bring_up(
        self, entry: FlexEntry, request: VolumeRequest, driver: FlexDriver, until: float
    ) -> FlexEntry:
        """Attach and mount the device, unless it is mounted; return the new entry."""
        mounted = await self._node.find_mount(entry.global_directory) is not None
        if mounted and entry.stage is DeviceStage.MOUNTED:
            return await self._journal.put(entry)
        if mounted and entry.stage in _MAY_BE_MOUNTED and not entry.others(request.target):
            await self._unmount_device(entry, driver, until)  # a call that a crash has interrupted
            mounted = False
        options = encode_options(volume_options(request))
        entry = await self._attach(entry, options, driver, until)
        entry = await self._journal.put(replace(entry, stage=DeviceStage.MOUNTING))
        await self._node.make_directory(entry.global_directory)
        if not mounted:
            arguments = (entry.global_directory, entry.device, options)
            reply = await driver.call(Command.MOUNT_DEVICE, arguments, until=until, key=entry.key)
            if reply is None and entry.device:
                entry = await self._mount_generic(entry, request, until)
        return await self._journal.put(replace(entry, stage=DeviceStage.MOUNTED, is_formatting=False))

    async def take_down(
        self,
        entry: FlexEntry,
        target: str,
        driver: FlexDriver,
        until: float,
        *,
        is_detached: bool = False,
    ) -> None:
        """End a pod's use of the device. If no other pod uses it, unmount and detach it, and remove the entry.

        `target`: of the pod; nothing is mounted there any more. `is_detached`: the driver answered that it could not
        attach the device, so that it may fail to detach it.
        """
        if entry.others(target) or await self._node.others(target):
            # A failed attempt for this pod has left another stage, but the device is theirs.
            is_begun = entry.stage in (DeviceStage.ATTACHING, DeviceStage.ATTACHED, DeviceStage.MOUNTING)
            stage = DeviceStage.MOUNTED if is_begun else entry.stage
            await self._journal.put(replace(entry.without_use(target), stage=stage))
            return
        if entry.stage is not DeviceStage.NONE:
            if entry.stage in _MAY_BE_MOUNTED:
                entry = await self._journal.put(replace(entry, stage=DeviceStage.UNMOUNTING), is_release=True)
            await self._unmount_device(entry, driver, until)
            entry = await self._journal.put(replace(entry, stage=DeviceStage.DETACHING), is_release=True)
            await self._detach(entry, driver, until, is_detached=is_detached)
        if entry.is_formatting:
            await self._journal.put(replace(entry, stage=DeviceStage.NONE, device="", uses={}))
        else:
            await self._journal.remove(entry.key)

    async def expand(
        self, entry: FlexEntry, request: VolumeRequest, driver: FlexDriver, size_bytes: int, until: float
    ) -> int:
        """Expand the volume and its file system: the driver's ``expandvolume`` and ``expandfs``, or the node's own tools.

        Returns the new size in bytes.
        """
        directory = entry.global_directory if entry.attach else request.target
        mounted = await self._node.find_mount(directory)
        before = request.capacity_bytes
        source = entry.device or (mounted.source if mounted is not None else "")
        device = Device(source, self._node.programs(entry.volume, directory, until))
        if mounted is not None:
            before = (await self._node.measure(directory, until)).capacity_bytes or 0
            if size_bytes <= before:  # a driver might shrink the volume
                return max(before, await device.find_size())
        options = encode_options(volume_options(request))
        sizes = str(size_bytes), str(before)
        reply = await driver.call(
            Command.EXPAND_VOLUME, (options, directory, *sizes), until=until, key=entry.key
        )
        grown = max(size_bytes, reply.new_size_bytes) if reply is not None else 0
        if not driver.capabilities.requires_fs_resize:
            return _checked(grown, entry)
        arguments = (options, entry.device, directory, *sizes)
        reply = await driver.call(Command.EXPAND_FS, arguments, until=until, key=entry.key)
        if reply is not None:
            return max(size_bytes, reply.new_size_bytes)
        if mounted is None:
            return _checked(grown, entry)
        try:
            return await device.grow(mounted, size_bytes)
        except Unsupported:  # such as a file system of a server, which has grown with the volume
            return _checked(grown, entry)

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
        if await self._node.find_mount(target) is not None or await self._node.exists(target):
            has_files = entry.uses[target].is_mount is False
            await self._call_unmount(Command.UNMOUNT, target, entry, driver, until, has_files=has_files)
        await self._node.remove_directory(target)

    def check_sharing(self, entry: FlexEntry, request: VolumeRequest) -> None:
        """Raise Unavailable if other pods use the device in a way that excludes the request."""
        others = entry.others(request.target)
        if not others:
            return
        if entry.fingerprint != fingerprint(request):
            raise volume_error(
                Unavailable,
                entry.volume,
                f"pod {others[0].pod} uses a volume of driver {entry.driver} with this name and other options on this "
                "node; give one of them another name",
            )
        if entry.read_only and not request.read_only:
            raise volume_error(
                Unavailable,
                entry.volume,
                f"pod {others[0].pod} uses it read-only on this node, so that it cannot be written until that pod ends",
            )

    def is_outdated(self, entry: FlexEntry, request: VolumeRequest) -> bool:
        """Return True if only this request's pod uses the device, and it was attached with other options."""
        is_same = entry.fingerprint == fingerprint(request) and entry.read_only == request.read_only
        return entry.stage is not DeviceStage.NONE and not entry.others(request.target) and not is_same

    async def _attach(self, entry: FlexEntry, options: str, driver: FlexDriver, until: float) -> FlexEntry:
        before = entry
        entry = await self._journal.put(replace(entry, stage=DeviceStage.ATTACHING))
        try:
            reply = await driver.call(Command.ATTACH, (options, entry.node), until=until, key=entry.key)
        except DriverMissing:
            await self._journal.put(before)
            raise
        device = reply.device if reply is not None else ""
        entry = await self._journal.put(replace(entry, stage=DeviceStage.ATTACHED, device=device))
        reply = await driver.call(Command.WAIT_FOR_ATTACH, (device, options), until=until, key=entry.key)
        return replace(entry, device=(reply.device if reply is not None else "") or device)

    async def _mount_generic(self, entry: FlexEntry, request: VolumeRequest, until: float) -> FlexEntry:
        """Mount the device, and format it before if it is blank, for a driver that leaves this to the kubelet."""
        directory = entry.global_directory
        programs = self._node.programs(entry.volume, directory, until)
        device = Device(entry.device, programs)
        if not await device.find_size():
            raise device.refused("it is not a block device of this node; the driver named it")
        work = asyncio.create_task(self._check_or_format(entry, request), name=f"flexvolume {entry.volume}")
        self.working[entry.key] = work
        work.add_done_callback(partial(self._ended, entry))
        try:
            async with asyncio.timeout_at(until):
                entry, fs_type = await asyncio.shield(work)
        except TimeoutError:
            problem = (
                f"device {entry.device} is still checked or formatted; it is mounted when that has ended"
            )
            raise volume_error(TimedOut, entry.volume, problem) from None
        await Mounts(programs).mount(entry.device, directory, fs_type=fs_type, read_only=request.read_only)
        return entry

    async def _check_or_format(self, entry: FlexEntry, request: VolumeRequest) -> tuple[FlexEntry, str]:
        """Return the new entry and the type of the device's file system. The deadline of the call does not apply."""
        device = Device(entry.device, self._node.programs(entry.volume, entry.global_directory, math.inf))
        fs_type = await device.look(
            request.fs_type, read_only=request.read_only, is_interrupted=entry.is_formatting
        )
        if not fs_type:
            fs_type = request.fs_type or DEFAULT_FS_TYPE
            entry = await self._journal.put(replace(entry, is_formatting=True))
            await device.make(fs_type)
            entry = await self._journal.put(replace(entry, is_formatting=False))
        return entry, fs_type

    def _ended(self, entry: FlexEntry, work: asyncio.Task[tuple[FlexEntry, str]]) -> None:
        del self.working[entry.key]
        if not work.cancelled() and (error := work.exception()) is not None:
            log.debug("A device could not be checked or formatted", volume=entry.volume, err=str(error))

    async def _unmount_device(self, entry: FlexEntry, driver: FlexDriver, until: float) -> None:
        """Unmount the device if it is or may be mounted, and remove the directory."""
        directory = entry.global_directory
        if await self._node.find_mount(directory) is not None or entry.stage in _MAY_BE_MOUNTED:
            await self._call_unmount(Command.UNMOUNT_DEVICE, directory, entry, driver, until)
        await self._node.remove_directory(directory)

    async def _call_unmount(
        self,
        command: Command,
        path: str,
        entry: FlexEntry,
        driver: FlexDriver,
        until: float,
        *,
        has_files: bool = False,
    ) -> None:
        """Unmount a path. A failure counts as done if nothing is mounted there, unless the driver only `has_files`."""
        try:
            if await driver.call(command, (path,), until=until, key=entry.key) is None:
                await Mounts(self._node.programs(entry.volume, path, until)).unmount(path)
        except (DriverFailed, BadAnswer) as error:
            if has_files or await self._node.find_mount(path) is not None:
                raise
            log.warning(
                "Ignored a failed unmount, nothing is mounted",
                volume=entry.volume,
                command=command.value,
                err=str(error),
            )
        if await self._node.find_mount(path) is not None:
            raise volume_error(
                Unavailable,
                entry.volume,
                f"driver {entry.driver} answered that {path} is unmounted, but it still is a mount point; it is tried "
                "again",
            )

    async def _detach(self, entry: FlexEntry, driver: FlexDriver, until: float, *, is_detached: bool) -> None:
        try:
            await driver.call(Command.DETACH, (entry.volume, entry.node), until=until, key=entry.key)
        except DriverFailed as error:
            if not is_detached:
                raise
            log.warning("Ignored a failed detach after a failed attach", volume=entry.volume, err=str(error))

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


def _checked(grown: int, entry: FlexEntry) -> int:
    """Return the size that the driver has made. Raises Unsupported if it has done nothing."""
    if not grown:
        problem = f"driver {entry.driver} does not expand volumes; expand it with the tools of its storage"
        raise volume_error(Unsupported, entry.volume, problem)
    return grown
