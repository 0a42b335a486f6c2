"""Loop devices of this kernel: block devices whose content is a file. Source: losetup(8), loop(4).

sysfs has the file of each device; reading it never waits for the file's storage. A device that is in use when it is
detached gets ``autoclear`` and disappears when its last user closes it. Until then it counts as attached.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import Clock, Conflict, Unavailable

from ..commands import Commands
from .backend import read_attribute

_SYS_BLOCK: Final = Path("/sys/block")
_DELETED: Final = " (deleted)"
_SECONDS: Final = 30.0
_GONE_SECONDS: Final = 2.0
_PAUSE_SECONDS: Final = 0.02


class LoopDevice(msgspec.Struct, frozen=True, kw_only=True):
    """One loop device with a file. `is_ending`: it disappears when its last user closes it."""

    device: str
    file: str
    is_deleted: bool
    is_read_only: bool
    is_ending: bool


class LoopDevices:
    """Attaches files to loop devices. `sys_block`: ``/sys/block``."""

    def __init__(self, commands: Commands, clock: Clock, sys_block: Path = _SYS_BLOCK) -> None:
        self._commands = commands
        self._clock = clock
        self._sys_block = sys_block
        self._names: dict[str, str] = {}
        """Names of the devices that were attached last, by file; a hint, which saves a search."""

    def find(self, path: str) -> LoopDevice | None:
        """Return the loop device with this file, also if the file was deleted since.

        Raises Unavailable if it is not known.
        """
        hint = self._names.get(path)
        if hint is not None and self.file_of(hint) == path:
            return _read(self._directory(hint))
        for name in _loop_names(self._sys_block):
            directory = f"{self._sys_block}/{name}"
            if _file_of(directory).removesuffix(_DELETED) == path:
                return _read(directory)
        return None

    def file_of(self, device: str) -> str:
        """Return the file of a device such as /dev/loop0; empty if it has none, or is not a loop device."""
        return _file_of(self._directory(device)).removesuffix(_DELETED)

    async def attach(self, path: str, *, volume: str, read_only: bool) -> str:
        """Attach the file to a loop device and return the device; if it is attached already, only return that.

        Raises Unavailable while an earlier device of the file disappears, and Conflict if the present device is
        read-only and `read_only` is False.
        """
        device = self.find(path)
        if device is None:
            await self._refuse_other_path(path, volume)
            command = ["losetup", "--find", "--show", *(["--read-only"] if read_only else [])]
            result = await self._commands.run([*command, "--", path], seconds=_SECONDS, volume=volume)
            if result.exit_code != 0:
                raise result.problem(f"volume {volume}")
            name = result.out.strip()
            device = _read(self._directory(name)) if self.file_of(name) == path else None
            if device is None:
                raise Unavailable(f"volume {volume}: {path} is not the file of {name}; detach that device")
            self._names[path] = name
        if device.is_deleted or device.is_ending:
            why = (
                "of a deleted file" if device.is_deleted else "which disappears when its last user closes it"
            )
            raise Unavailable(f"volume {volume}: {path} has the loop device {device.device}, {why}")
        if device.is_read_only and not read_only:
            raise Conflict(
                f"volume {volume}: {device.device} is read-only; pods that write must wait for its end"
            )
        return device.device

    async def detach(self, path: str, *, volume: str, force: bool = False) -> None:
        """Detach the file's device; succeeds if there is none. Raises Unavailable while it is in use.

        `force`: also while another program of the volume hangs.
        """
        device = self.find(path)
        self._names.pop(path, None)
        if device is None:
            return
        if not device.is_ending:
            command = ["losetup", "--detach", device.device]
            result = await self._commands.run(command, seconds=_SECONDS, volume="" if force else volume)
            if result.exit_code != 0 and self.find(path) is not None:
                raise result.problem(f"volume {volume}")
        ends = self._clock.monotonic() + _GONE_SECONDS
        while (
            self.find(path) is not None
        ):  # the kernel has no event for it; udev may have it open for a moment
            if self._clock.monotonic() >= ends:
                raise Unavailable(
                    f"volume {volume}: loop device {device.device} is in use; stop the process that has it open"
                )
            await self._clock.sleep(_PAUSE_SECONDS)

    async def _refuse_other_path(self, path: str, volume: str) -> None:
        """Raise Conflict if the file is attached by another path, such as one in a bind mount.

        Only devices whose files have the same name are asked: `losetup --nooverlap` asks all, and hangs if the storage of
        any of them does.
        """
        for name in _loop_names(self._sys_block):
            file = self.file_of(name)
            if file == path or not file.endswith(f"/{path.rpartition('/')[2]}"):
                continue
            columns = ["--noheadings", "--output", "BACK-INO,BACK-MAJ:MIN"]
            command = ["losetup", "--list", *columns, f"/dev/{name}"]
            result = await self._commands.run(command, seconds=_SECONDS, volume=volume)
            if result.out.split() == _identity(path):
                raise Conflict(
                    f"volume {volume}: {path} is attached as /dev/{name} by path {file}; detach it"
                )

    def _directory(self, device: str) -> str:
        """Return the directory of a device such as /dev/loop0 in sysfs."""
        return f"{self._sys_block}/{device.rpartition('/')[2]}"


def _identity(path: str) -> list[str]:
    """Return inode and device of a file, as losetup prints them."""
    found = Path(path).stat()
    return [str(found.st_ino), f"{os.major(found.st_dev)}:{os.minor(found.st_dev)}"]


def _loop_names(sys_block: Path) -> list[str]:
    try:
        return [name for name in os.listdir(sys_block) if name.startswith("loop")]
    except FileNotFoundError:
        return []


def _file_of(directory: str) -> str:
    """Return the file of a device of sysfs, as the kernel writes it; empty if it has none.

    Each search asks this of every loop device, so it must be quick.
    """
    return (
        read_attribute(f"{directory}/loop/backing_file").decode("utf-8", "surrogateescape").removesuffix("\n")
    )


def _read(directory: str) -> LoopDevice | None:
    file = _file_of(directory)
    ending = read_attribute(f"{directory}/loop/autoclear")
    read_only = read_attribute(f"{directory}/ro")
    if not (ending and read_only):  # it disappeared meanwhile
        return None
    return LoopDevice(
        device=f"/dev/{directory.rpartition('/')[2]}",
        file=file.removesuffix(_DELETED),
        is_deleted=file.endswith(_DELETED),
        is_read_only=read_only.strip() == b"1",
        is_ending=ending.strip() == b"1",
    )
