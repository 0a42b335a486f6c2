"""`MountNamespace`: the mount namespace in which the kubelet finds volumes: its mounts, directories and programs.

The agent may run in a container, with a mount namespace of its own. Programs that mount are then started in the
kubelet's namespace with nsenter(1), and files there are reached through ``/proc/PID/root``. Source: nsenter(1),
proc(5).

Directories below a kubelet's root directory are reached without following a link, so that a pod cannot make the agent
mount elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import InvalidConfig, Unavailable
from kubeletx.linux.blank import PROBE
from kubeletx.linux.blank_probe import INTERRUPTED
from kubeletx.linux.mounts import MountPoint, find_mount, read_mounts
from kubeletx.linux.programs import ProgramResult

from ..commands import Commands
from ..programs import LOOK_SECONDS

_MAX_LINKS: Final = 40
_LINK: Final = (errno.ELOOP, errno.ENOTDIR)
"""Results of opening a link as a directory."""


class MountNamespace:
    """Mount namespace of one process. `pid` None: the namespace of this process."""

    def __init__(self, pid: int | None = None, proc: Path = Path("/proc")) -> None:
        self._process = proc / ("self" if pid is None else str(pid))
        self._pid = pid

    def table(self, word: str = "") -> tuple[MountPoint, ...]:
        """Return the mounts of the namespace. `word`: only those whose line contains it."""
        return read_mounts(word=word, table=self._process / "mountinfo")

    def find_mount(self, path: str) -> MountPoint | None:
        return find_mount(self.table(path.rpartition("/")[2]), path)

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` in the namespace."""
        if self._pid is None:
            return list(command)
        return ["nsenter", f"--mount={self._process}/ns/mnt", "--", *command]

    def path(self, path: str) -> Path:
        """Return the path by which this process reaches the namespace's absolute `path`."""
        return Path(path) if self._pid is None else self._process / "root" / path.lstrip("/")

    def real_path(self, path: str) -> str:
        """Resolve all links in the namespace's absolute `path`. Parts that do not exist stay as they are."""
        done, left, links = "", [part for part in path.split("/") if part], 0
        while left:
            part = left.pop(0)
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            step = f"{done}/{part}"
            try:
                text = os.readlink(self.path(step))
            except OSError:
                done = step
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            done = "" if text.startswith("/") else done
            left = [*(part for part in text.split("/") if part not in ("", ".")), *left]
        return done or "/"

    def check(self) -> None:
        """Raise InvalidConfig if the namespace cannot be entered."""
        try:
            (self._process / "ns" / "mnt").stat()
        except OSError as error:
            raise InvalidConfig(
                obj="storage agent",
                field="--mount-namespace-of",
                problem=f"{self._pid}: {error.strerror}",
                fix="give the PID of a process in the kubelet's mount namespace; a pod needs hostPID for that",
            ) from error

    @contextlib.contextmanager
    def open_directory(self, kubelet_root: str, path: str, *, make: bool = False) -> Iterator[int]:
        """Yield a descriptor of the directory `path`, which is below `kubelet_root`.

        `make`: make missing directories, with mode 0750. Links are followed in `kubelet_root` only. Raises Unavailable if
        the directory is missing, or a part of it is a link.
        """
        flags = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        with contextlib.ExitStack() as stack:
            current = os.open("/" if self._pid is None else f"{self._process}/root", flags)
            stack.callback(os.close, current)
            try:
                current = os.open(kubelet_root.lstrip("/"), flags, dir_fd=current)
                stack.callback(os.close, current)
                for part in path[len(kubelet_root) + 1 :].split("/"):
                    if make:
                        with contextlib.suppress(FileExistsError):
                            os.mkdir(part, 0o750, dir_fd=current)
                    current = os.open(part, flags | os.O_NOFOLLOW, dir_fd=current)
                    stack.callback(os.close, current)
            except OSError as error:
                reason = "it or a part of it is a link" if error.errno in _LINK else error.strerror
                raise Unavailable(f"directory {path}: {reason}") from error
            yield current

    def make_directory(self, kubelet_root: str, path: str) -> None:
        with self.open_directory(kubelet_root, path, make=True):
            pass

    def check_directory(self, kubelet_root: str, path: str) -> None:
        """Raise Unavailable if `path` is not a directory that can be reached without links."""
        with self.open_directory(kubelet_root, path):
            pass

    def make_file(self, kubelet_root: str, path: str) -> None:
        """Make the empty file `path` for a device; succeeds if it exists. Links are refused."""
        parent, _, name = path.rpartition("/")
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with self.open_directory(kubelet_root, parent) as directory:
            try:
                os.close(os.open(name, flags, 0o600, dir_fd=directory))
            except FileExistsError:
                if stat.S_ISLNK(os.stat(name, dir_fd=directory, follow_symlinks=False).st_mode):
                    raise Unavailable(f"file {path}: it is a link; remove it") from None
            except OSError as error:
                raise Unavailable(f"file {path}: {error.strerror}") from error

    def remove(self, kubelet_root: str, path: str) -> None:
        """Remove the directory, or the file for a device, if it is there and empty."""
        parent, _, name = path.rpartition("/")
        # an empty directory or file that is left does no harm
        with (
            contextlib.suppress(OSError, Unavailable),
            self.open_directory(kubelet_root, parent) as directory,
        ):
            info = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if stat.S_ISDIR(info.st_mode):
                os.rmdir(name, dir_fd=directory)
            elif stat.S_ISREG(info.st_mode) and not info.st_size:
                os.unlink(name, dir_fd=directory)


class NamespacePrograms:
    """Runs programs for one volume in the kubelet's mount namespace. Implements `VolumePrograms`."""

    def __init__(self, commands: Commands, namespace: MountNamespace, volume: str) -> None:
        self._commands = commands
        self._namespace = namespace
        self.volume = volume

    async def run(self, command: Sequence[str], seconds: float) -> ProgramResult:
        return await self._commands.run(self._namespace.command(command), seconds=seconds, volume=self.volume)

    async def probe(self, device: str, *, is_interrupted: bool) -> ProgramResult:
        # This process's Python may be missing in the other namespace, so that the device is reached from here.
        command = [*PROBE, str(self._namespace.path(device)), *([INTERRUPTED] if is_interrupted else [])]
        return await self._commands.run(command, seconds=LOOK_SECONDS, volume=self.volume)

    async def find_mount(self, path: str) -> MountPoint | None:
        return self._namespace.find_mount(path)
