"""`Mounts`: mounts and unmounts with mount(8) and umount(8), in the kubelet's mount namespace.

Every call may be repeated: it looks at the mount table first, and an unmount that fails is a success if nothing is
mounted any more. All paths are those of the kubelet's namespace.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Final

import structlog

from kubeletx.api import Conflict, TimedOut, Unavailable

from ..backends.backend import AttachedSource, SourceType
from ..commands import Commands
from ..mount_table import MountEntry, find_topmost, read_table
from .namespace import MountNamespace
from .paths import open_directory

log = structlog.get_logger(__name__)

_MAX_STACKED: Final = 16
_KEPT_BY_BINDS: Final = frozenset(
    ("nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "strictatime")
)


class Mounts:
    """Mounts of volumes. `mount_seconds`, `unmount_seconds`: deadlines of one program."""

    def __init__(
        self, commands: Commands, namespace: MountNamespace, *, mount_seconds: float, unmount_seconds: float
    ) -> None:
        self._commands = commands
        self._namespace = namespace
        self._mount_seconds = mount_seconds
        self._unmount_seconds = unmount_seconds

    def table(self, word: str = "") -> tuple[MountEntry, ...]:
        """Return the mounts of the namespace. `word`: only those whose line contains it."""
        return read_table(self._namespace.table_path, word)

    def find(self, path: str) -> MountEntry | None:
        """Return the topmost mount on `path`."""
        return find_topmost(self.table(path.rpartition("/")[2]), path)

    def make_directory(self, kubelet_root: str, path: str) -> None:
        """Make the directory `path` below the kubelet's root directory; links on the way are refused."""
        with self._namespace.open_root() as root, open_directory(root, kubelet_root, path, make=True):
            pass

    def check_directory(self, kubelet_root: str, path: str) -> None:
        """Raise Unavailable if `path` is no directory that can be reached without links."""
        with self._namespace.open_root() as root, open_directory(root, kubelet_root, path):
            pass

    def remove_directory(self, kubelet_root: str, path: str) -> None:
        """Remove the directory if it is there and empty."""
        parent, _, name = path.rpartition("/")
        try:
            with (
                self._namespace.open_root() as root,
                open_directory(root, kubelet_root, parent) as descriptor,
            ):
                os.rmdir(name, dir_fd=descriptor)
        except (OSError, Unavailable):  # an empty directory that is left does no harm
            return

    def make_file(self, kubelet_root: str, path: str) -> None:
        """Make the empty file `path` for a device; succeeds if it exists. Links are refused."""
        parent, _, name = path.rpartition("/")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with self._namespace.open_root() as root, open_directory(root, kubelet_root, parent) as directory:
            try:
                os.close(os.open(name, flags, 0o600, dir_fd=directory))
            except FileExistsError:
                if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    raise Unavailable(f"file {path}: it is a link; remove it") from None
            except OSError as error:
                raise Unavailable(f"file {path}: {error.strerror}") from error

    def remove_file(self, kubelet_root: str, path: str) -> None:
        """Remove the file for a device if it is there and empty."""
        parent, _, name = path.rpartition("/")
        try:
            with (
                self._namespace.open_root() as root,
                open_directory(root, kubelet_root, parent) as directory,
            ):
                found = os.stat(name, dir_fd=directory, follow_symlinks=False)
                if stat.S_ISREG(found.st_mode) and not found.st_size:
                    os.unlink(name, dir_fd=directory)
        except (OSError, Unavailable):  # an empty file that is left does no harm
            return

    async def mount(
        self,
        volume: str,
        source: AttachedSource,
        directory: str,
        *,
        read_only: bool,
        fs_type: str,
        options: Sequence[str],
    ) -> bool:
        """Mount an attached volume on `directory`, and return True if it can be written to.

        Succeeds if it is mounted there, also with other options. Raises Conflict if something else is mounted there.
        """
        present = self.find(directory)
        if present is not None:
            self._check_source(volume, source, present)
            return not present.is_read_only
        command = ["mount", "-c", "--bind"]
        if source.type is not SourceType.DIRECTORY:
            chosen = ",".join(("ro" if read_only else "rw", *options, *source.mount_options))
            command = ["mount", "-c", "-t", source.fs_type or fs_type, "-o", chosen]
        await self._run(volume, [*command, "--", source.source, directory], self._mount_seconds)
        return not read_only or source.type is SourceType.DIRECTORY

    async def remount_writable(self, volume: str, directory: str) -> None:
        """Make a file system that is mounted read-only writable."""
        await self._run(volume, ["mount", "-c", "-o", "remount,rw", "--", directory], self._mount_seconds)

    async def stop_writers(self, volume: str, directory: str) -> None:
        """Make the file system of a server read-only in all mount namespaces; no device can be taken away from it.

        Raises Unavailable while a process has a file open for writing. Other errors are logged: a server that does not
        answer must not keep the mount.
        """
        if self.find(directory) is None:
            return
        command = self._namespace.command(["mount", "-c", "-o", "remount,ro", "--", directory])
        try:
            result = await self._commands.run(command, seconds=self._unmount_seconds, volume=volume)
        except TimedOut as error:
            log.warning("Failed to make a volume read-only", volume=volume, err=str(error))
            return
        if result.code != 0 and "busy" in result.err:
            raise Unavailable(
                f"volume {volume}: it is in use: a process has a file open and can still write; end the process"
            )
        if result.code != 0:
            log.warning("Failed to make a volume read-only", volume=volume, err=str(result.problem("mount")))

    async def bind(
        self, volume: str, directory: str, target: str, *, read_only: bool, options: Sequence[str]
    ) -> None:
        """Mount `directory` also on `target`; succeeds if it is mounted there.

        Raises Conflict if something else is mounted there, and Unavailable if nothing is mounted on `directory`, or the
        mount does not appear as asked.
        """
        name = target.rpartition("/")[2]
        table = self.table(name if directory.endswith(f"/{name}") else "")
        base, present = find_topmost(table, directory), find_topmost(table, target)
        if base is None:  # the pod would write to the disk of the node
            raise Unavailable(
                f"volume {volume}: nothing is mounted on {directory} any more; the next call mounts it again"
            )
        if present is not None and not present.has_same_files(base):
            raise Conflict(f"volume {volume}: {present.source} is mounted on {target}; unmount it")
        if present is None or present.is_read_only != read_only:
            # the second step of a read-only bind clears flags of the mount that are not given again
            chosen = [
                "bind",
                *(["ro"] if read_only else []),
                *(one for one in options if one in _KEPT_BY_BINDS),
            ]
            if present is not None:
                await self.unmount(volume, target)
            await self._run(
                volume, ["mount", "-c", "-o", ",".join(chosen), "--", directory, target], self._mount_seconds
            )
        made = self.find(target)
        if made is None or made.is_read_only < read_only:
            problem = "is not in the kubelet's mount namespace" if made is None else "is not read-only"
            raise Unavailable(
                f"volume {volume}: the mount on {target} {problem}; see option --mount-namespace-of"
            )

    async def bind_device(self, volume: str, device: str, target: str) -> None:
        """Mount the file of a device on the file `target`; succeeds if it is mounted there.

        Raises Conflict if something else is mounted there.
        """
        present = self.find(target)
        if present is not None and present.device_path != device:
            shown = present.device_path or present.source
            raise Conflict(f"volume {volume}: {shown} is mounted on {target}, not {device}; unmount it")
        if present is None:
            await self._run(volume, ["mount", "-c", "--bind", "--", device, target], self._mount_seconds)
            if self.find(target) is None:
                raise Unavailable(
                    f"volume {volume}: the mount on {target} is not in the kubelet's mount namespace; "
                    "see option --mount-namespace-of"
                )

    async def unmount(self, volume: str, path: str, *, lazy: bool = False) -> None:
        """Unmount everything that is mounted on `path`. `lazy`: also while it is in use.

        Raises Unavailable if it is in use, and TimedOut if the program hangs.
        """
        command = ["umount", "-c", *(["-f", "-l"] if lazy else []), "--", path]
        for _ in range(_MAX_STACKED):
            if self.find(path) is None:
                return
            result = await self._commands.run(
                self._namespace.command(command), seconds=self._unmount_seconds, volume=volume
            )
            if result.code != 0 and self.find(path) is not None:
                raise result.problem(f"volume {volume}")
        raise Unavailable(f"volume {volume}: more than {_MAX_STACKED} mounts are on {path}; unmount them")

    def _check_source(self, volume: str, source: AttachedSource, present: MountEntry) -> None:
        """Raise Conflict if another file system is mounted than that of the source."""
        if source.type is SourceType.DIRECTORY or present.source == source.source:
            return
        raise Conflict(
            f"volume {volume}: {present.source} is mounted on {present.target}, not {source.source}; unmount it"
        )

    async def _run(self, volume: str, command: Sequence[str], seconds: float) -> None:
        result = await self._commands.run(self._namespace.command(command), seconds=seconds, volume=volume)
        if result.code != 0:
            raise result.problem(f"volume {volume}")
