"""`GenericDevice`: formats, checks, mounts and resizes a device, for drivers that do not support it themselves.

As in the kubelet, the device is looked at first: an empty one is formatted, a file system is checked (if it will be
written) and mounted. Here it is formatted only if two looks find it blank (`blank`), and a file system of
another type than the volume asks for is refused.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kubeletx.api import Unavailable, Unsupported
from kubeletx.api.names import Event

from .blank import check_blank, device_size, is_block_device, look_at_device
from .mount_table import MountLine
from .mounts import Mounts
from .programs import Programs, failed
from .threads import Threads

log = structlog.get_logger(__name__)

DEFAULT_FS_TYPE: Final = "ext4"
_MKFS_OPTIONS: Final = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0")}
_CLEAN: Final = frozenset({0, 1})
_UNCORRECTED: Final = 4
_EXT: Final = frozenset({"ext2", "ext3", "ext4"})


class GenericDevice:
    """Formats, mounts, resizes and unmounts devices of drivers that leave these steps to the kubelet."""

    def __init__(self, programs: Programs, mounts: Mounts, threads: Threads) -> None:
        """`threads`: for calls that may hang with the device."""
        self._programs = programs
        self._mounts = mounts
        self._threads = threads

    async def mount(
        self,
        device: str,
        directory: str,
        fs_type: str,
        *,
        read_only: bool,
        is_interrupted: bool,
        formatting: Callable[[bool], Awaitable[object]],
        until: float,
    ) -> None:
        """Mount a device, and format it before if it is blank.

        `fs_type`: file system that it should have; empty: any, and ext4 for a new one. `is_interrupted`: a format of
        this device has not ended. `formatting`: called with True before the formatting and with False after it, to
        journal it.
        """
        await self._check(device, until)
        found = await look_at_device(self._programs, device, until=until, key=directory)
        if found.is_empty:
            if read_only:
                raise _refused(device, "it is empty, and a volume that is read-only is not formatted")
            chosen = fs_type or DEFAULT_FS_TYPE
            await check_blank(
                self._programs,
                self._threads,
                device,
                until=until,
                key=directory,
                is_interrupted=is_interrupted,
            )
            await formatting(True)
            await self._format(device, chosen, directory, until)
            await formatting(False)
        else:
            chosen = self._existing(device, found.fs_type, found.partitions, fs_type)
            if not read_only:
                await self._repair(device, directory, until)
        await self._mounts.mount(device, directory, chosen, read_only=read_only, until=until)

    async def expand(self, mounted: MountLine, device: str, size_bytes: int, *, until: float) -> int:
        """Make the mounted file system as large as its device; return the size of the device.

        Raises Unsupported for a file system that cannot grow while it is mounted.
        """
        source = device or mounted.source
        program = _growing(mounted, source)
        await self._check(source, until)
        size = await self._size(source, until)
        if size < size_bytes:
            raise _refused(source, f"it has {size} bytes, and the volume should have {size_bytes}")
        if mounted.read_only:
            raise _refused(source, "it is mounted read-only, so that its file system cannot grow")
        result = await self._programs.run(*program, until=until, key=mounted.target)
        if result.exit_code != 0:
            raise failed(program[0], f"expand the file system on {source}", result)
        return size

    async def size(self, mounted: MountLine, device: str, *, until: float) -> int:
        """Return the size of the device behind a mount in bytes; 0 if there is no block device."""
        source = device or mounted.source
        if not await self._threads.run_until(until, is_block_device, source):
            return 0
        return await self._size(source, until)

    async def _size(self, device: str, until: float) -> int:
        try:
            return await self._threads.run_until(until, device_size, device)
        except OSError as error:
            raise _refused(device, f"it cannot be opened: {error.strerror}") from error

    async def _check(self, device: str, until: float) -> None:
        is_path = device.startswith("/") and "\0" not in device
        if not is_path or not await self._threads.run_until(until, is_block_device, device):
            raise _refused(device, "it is no block device of this node; the driver named it")

    def _existing(self, device: str, found: str, table: str, wanted: str) -> str:
        if not found:
            raise _refused(device, f"it has a partition table ({table}); use a volume without one")
        if wanted and found != wanted:
            raise _refused(device, f"it has a file system {found}, and the volume asks for fsType {wanted}")
        return found

    async def _format(self, device: str, fs_type: str, key: str, until: float) -> None:
        program = (f"mkfs.{fs_type}", *_MKFS_OPTIONS.get(fs_type, ()), device)
        result = await self._programs.run(*program, until=until, key=key)
        if result.exit_code != 0:
            raise failed(program[0], f"format {device}", result)
        log.info("Formatted a device", device=device, fs_type=fs_type)

    async def _repair(self, device: str, key: str, until: float) -> None:
        result = await self._programs.run("fsck", "-a", device, until=until, key=key)
        if result.exit_code == _UNCORRECTED:
            raise failed("fsck", f"repair {device}; run it by hand", result)
        if result.exit_code not in _CLEAN:  # as in the kubelet: there is no fsck for every file system
            log.warning("Could not check a file system", device=device, exit_code=result.exit_code)


def _growing(mounted: MountLine, device: str) -> tuple[str, ...]:
    if mounted.fs_type in _EXT:
        return "resize2fs", device
    if mounted.fs_type == "xfs":
        return "xfs_growfs", "-d", mounted.target
    if mounted.fs_type == "btrfs":
        return "btrfs", "filesystem", "resize", "max", mounted.target
    raise Unsupported(f"a file system {mounted.fs_type} cannot be expanded while it is mounted")


def _refused(device: str, why: str) -> Unavailable:
    return Unavailable(f"device {device or '(none)'} cannot be used: {why}", reason=Event.FAILED_MOUNT)
