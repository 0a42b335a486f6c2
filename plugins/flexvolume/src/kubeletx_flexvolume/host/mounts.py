"""`Mounts`: mounts and unmounts with mount(8) and umount(8), for what a driver does not support itself."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeVar

from ..errors import file_error
from .mount_table import MountLine, kernel_path, mount_on, same_volume
from .programs import Programs, failed
from .threads import Threads

R = TypeVar("R")

_MODE: Final = 0o750


class Mounts:
    """Mounts of this process's mount namespace."""

    def __init__(
        self, programs: Programs, threads: Threads, table: Callable[[], tuple[MountLine, ...]]
    ) -> None:
        """`table`: returns the present mounts; called on a thread."""
        self._programs = programs
        self._threads = threads
        self._table = table

    async def find(self, path: str) -> MountLine | None:
        """Return the topmost mount on a path; None if it is no mount point."""
        return await self._read(lambda: mount_on(self._table(), kernel_path(path)))

    async def others(self, target: str) -> tuple[str, ...]:
        """Return the mount points of other pods that have the same volume as the pod with this target."""
        return await self._read(lambda: same_volume(self._table(), kernel_path(target)))

    async def exists(self, path: str) -> bool:
        """Return True if a path that is no mount point exists."""
        return await self._threads.run(os.path.lexists, path)

    async def make_directory(self, path: str) -> None:
        """Make a directory with mode 0750, and missing parents; succeeds if it exists."""
        try:
            await self._threads.run(_make, path)
        except OSError as error:
            raise file_error("cannot make the directory of the volume", error) from error

    async def remove_directory(self, path: str) -> None:
        """Remove a directory if it is empty and no mount point; otherwise leave it."""
        try:
            await self._threads.run(_remove, path)
        except OSError as error:
            raise file_error("cannot remove the directory of the volume", error) from error

    async def mount(self, source: str, target: str, fs_type: str, *, read_only: bool, until: float) -> None:
        """Mount a device."""
        mode = "ro" if read_only else "rw"
        program = ("mount", "-t", fs_type, "-o", mode, "--", source, target)
        result = await self._programs.run(*program, until=until, key=target)
        if result.exit_code != 0:
            raise failed("mount", f"mount {source} on {target}", result)

    async def bind(self, source: str, target: str, *, read_only: bool, until: float) -> None:
        """Bind-mount a directory. If it cannot be made read-only, it is unmounted again."""
        result = await self._programs.run("mount", "--bind", "--", source, target, until=until, key=target)
        if result.exit_code != 0:
            raise failed("mount", f"bind {source} to {target}", result)
        if not read_only:
            return
        options = ("-o", "remount,bind,ro")
        result = await self._programs.run("mount", *options, "--", target, until=until, key=target)
        if result.exit_code != 0:
            await self.unmount(target, until=until)
            raise failed("mount", f"make {target} read-only", result)

    async def unmount(self, target: str, *, until: float) -> None:
        """Unmount what is on a path; succeeds if nothing is mounted there."""
        path = await self._read(lambda: kernel_path(target))
        result = await self._programs.run("umount", "-c", "--", path, until=until, key=target)
        if result.exit_code != 0 and await self.find(target) is not None:
            raise failed("umount", f"unmount {target}", result)

    async def _read(self, function: Callable[[], R]) -> R:
        try:
            return await self._threads.run(function)
        except OSError as error:
            raise file_error("cannot read the table of mounts", error) from error


def _make(path: str) -> None:
    # The directory itself may be a mount point that hangs; only a missing one is made.
    for one in (*reversed(Path(path).parents), Path(path)):
        with suppress(FileExistsError):
            one.mkdir()
            one.chmod(_MODE)  # the umask does not apply


def _remove(path: str) -> None:
    try:
        Path(path).rmdir()
    except OSError as error:
        if error.errno not in {errno.ENOENT, errno.ENOTEMPTY, errno.EBUSY, errno.EEXIST, errno.ENOTDIR}:
            raise
