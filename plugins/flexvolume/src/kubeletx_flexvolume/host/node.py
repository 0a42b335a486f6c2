"""`Node`: the mounts, directories and programs of this node.

Paths are compared as the kernel has them: of a path that is looked up, links in its directory are resolved, but the path
itself is not opened, since a dead file system may be mounted there.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

from kubeletx.api import Blocking, TimedOut, Unavailable, VolumeStats
from kubeletx.api.names import Event
from kubeletx.linux.blank import PROBE
from kubeletx.linux.blank_probe import INTERRUPTED
from kubeletx.linux.mounts import MountPoint, find_mount, kernel_path, read_mounts
from kubeletx.linux.programs import ProgramResult

from ..errors import file_error
from ..programs import LOOK_SECONDS

R = TypeVar("R")

_MODE: Final = 0o750
_KEPT: Final = frozenset({errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY, errno.EEXIST, errno.ENOTDIR})
"""Errors of rmdir(2) for a directory that is gone, is not empty, or is a mount point."""


class RunProgram(Protocol):
    """Runs one program of the node. `key`: as in `Processes.run`."""

    async def __call__(self, program: Sequence[str], *, key: str) -> ProgramResult: ...


class Node:
    """Mounts of this process's mount namespace, and the programs that change them."""

    def __init__(
        self,
        run: RunProgram,
        files: Blocking,
        volumes: Blocking,
        table: Callable[[], tuple[MountPoint, ...]] = read_mounts,
    ) -> None:
        """`files`, `volumes`: threads for calls on the node's own files, and for calls that may hang with a volume.

        `table`: returns the present mounts; called on a thread.
        """
        self.run = run
        self._files = files
        self._volumes = volumes
        self._table = table

    def programs(self, volume: str, key: str, until: float) -> NodePrograms:
        """Return what runs programs for a volume. `key`: as in `Processes.run`. `until`: deadline of all of them."""
        return NodePrograms(self, volume, key, until)

    async def find_mount(self, path: str) -> MountPoint | None:
        return await self._read(lambda: find_mount(self._table(), kernel_path(path)))

    async def others(self, target: str) -> tuple[str, ...]:
        """Return the mount points of this volume in other pods, found by the kubelet's directory layout."""
        return await self._read(lambda: same_volume(self._table(), kernel_path(target)))

    async def exists(self, path: str) -> bool:
        """Return True if a path that is not a mount point exists."""
        return await self._files(os.path.lexists, path)

    async def measure(self, path: str, until: float) -> VolumeStats:
        """Return the use of the file system at a path. Raises TimedOut at the deadline."""
        try:
            async with asyncio.timeout_at(until):
                return await self._volumes(_measure, path)
        except TimeoutError:
            raise TimedOut(
                f"the file system at {path} did not answer before the deadline", reason=Event.FAILED_MOUNT
            ) from None
        except OSError as error:
            raise file_error(f"cannot measure the volume at {path}", error) from error

    async def make_directory(self, path: str) -> None:
        """Make a directory with mode 0750, and missing parents; succeeds if it exists."""
        try:
            await self._files(_make, path)
        except OSError as error:
            raise file_error("cannot make the directory of the volume", error) from error

    async def remove_directory(self, path: str) -> None:
        """Remove a directory if it is empty and not a mount point; otherwise leave it."""
        try:
            await self._files(_remove, path)
        except OSError as error:
            raise file_error("cannot remove the directory of the volume", error) from error

    async def _read(self, function: Callable[[], R]) -> R:
        try:
            return await self._files(function)
        except OSError as error:
            raise file_error("cannot read the table of mounts", error) from error


class NodePrograms:
    """Runs programs for one volume. Implements `VolumePrograms`."""

    def __init__(self, node: Node, volume: str, key: str, until: float) -> None:
        self.volume = volume
        self._node = node
        self._key = key
        self._until = until

    async def run(self, command: Sequence[str], seconds: float) -> ProgramResult:
        until = min(self._until, asyncio.get_running_loop().time() + seconds)
        try:
            async with asyncio.timeout_at(until):
                return await self._node.run(command, key=self._key)
        except TimeoutError:
            raise TimedOut(
                f"{command[0]} did not end before the deadline and was killed; its device may hang",
                reason=Event.FAILED_MOUNT,
            ) from None
        except OSError as error:
            raise Unavailable(
                f"{command[0]} cannot be started: {error.strerror}; install it on the node",
                reason=Event.FAILED_MOUNT,
            ) from error

    async def probe(self, device: str, *, is_interrupted: bool) -> ProgramResult:
        return await self.run([*PROBE, device, *([INTERRUPTED] if is_interrupted else [])], LOOK_SECONDS)

    async def find_mount(self, path: str) -> MountPoint | None:
        return await self._node.find_mount(path)


def same_volume(mounts: Iterable[MountPoint], target: str) -> tuple[str, ...]:
    """Return the mount points of this volume in other pods, found by the kubelet's directory layout.

    `target`: ``.../pods/<uid>/volumes/<vendor>~<driver>/<name>``.
    """
    pods, uid, *rest = _split(target)
    others = []
    for mount in mounts:
        other_pods, other_uid, *other = _split(mount.target)
        if other == rest and other_pods == pods and other_uid != uid and rest[0] == "volumes":
            others.append(mount.target)
    return tuple(others)


def _measure(path: str) -> VolumeStats:
    """Return what statvfs(3) has. Blocks, also for long if the storage does not answer."""
    info = os.statvfs(path)
    return VolumeStats(
        capacity_bytes=info.f_blocks * info.f_frsize,
        used_bytes=(info.f_blocks - info.f_bfree) * info.f_frsize,
        available_bytes=info.f_bavail * info.f_frsize,
        inodes=info.f_files,
        inodes_used=info.f_files - info.f_ffree,
        inodes_free=info.f_ffree,
    )


def _split(path: str) -> tuple[str, str, str, str, str]:
    """Return the parts of a target: directory of all pods, UID, ``volumes``, driver, and name; empty if it has none."""
    parts = path.rsplit("/", 4)
    return (parts[0], parts[1], parts[2], parts[3], parts[4]) if len(parts) == 5 else ("", "", "", "", "")


def _make(path: str) -> None:
    # The directory itself may be a mount point that hangs; only a missing one is made.
    for directory in (*reversed(Path(path).parents), Path(path)):
        with suppress(FileExistsError):
            directory.mkdir()
            directory.chmod(_MODE)  # the umask does not apply


def _remove(path: str) -> None:
    try:
        Path(path).rmdir()
    except OSError as error:
        if error.errno not in _KEPT:
            raise
