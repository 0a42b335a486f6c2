"""`Mounts`: mounts and unmounts one volume with mount(8) and umount(8), in the mount namespace of the pods.

Every call may be repeated: it looks at the mount table first, and an unmount that fails is a success if nothing is
mounted any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from kubeletx.api import Conflict, KubeletxError, TimedOut, Unavailable
from kubeletx.api.names import Event
from kubeletx.linux.programs import ProgramResult

from .errors import volume_error
from .programs import VolumePrograms

log = structlog.get_logger(__name__)

_MAX_STACKED: Final = 16
_GROUP_SECONDS: Final = 30.0
_KEPT_BY_BINDS: Final = frozenset(
    ("nosuid", "nodev", "noexec", "noatime", "nodiratime", "relatime", "nosymfollow")
)


class Mounts:
    """Mounts of one volume. `mount_seconds`, `unmount_seconds`: deadlines of one program."""

    def __init__(
        self, programs: VolumePrograms, *, mount_seconds: float = 120.0, unmount_seconds: float = 120.0
    ) -> None:
        self._programs = programs
        self._mount_seconds = mount_seconds
        self._unmount_seconds = unmount_seconds

    async def mount(
        self, source: str, directory: str, *, fs_type: str, read_only: bool, options: Sequence[str] = ()
    ) -> bool:
        """Mount a device or a server's directory on `directory`, and return True if it can be written to.

        Succeeds if it is mounted there, also with other options. Raises Conflict if something else is mounted there.
        """
        present = await self._programs.find_mount(directory)
        if present is not None:
            if present.source != source:
                raise self._taken(present.source, directory, f", not {source}")
            return not present.is_read_only
        chosen = ",".join(("ro" if read_only else "rw", *options))
        await self._mount("-t", fs_type, "-o", chosen, "--", source, directory)
        return not read_only

    async def mount_directory(self, source: str, directory: str) -> bool:
        """Mount a directory on `directory`, and return True if it can be written to; succeeds if a mount is there."""
        present = await self._programs.find_mount(directory)
        if present is not None:
            return not present.is_read_only
        await self._mount("--bind", "--", source, directory)
        return True

    async def make_writable(self, directory: str) -> None:
        await self._mount("-o", "remount,rw", "--", directory)

    async def stop_writers(self, directory: str) -> None:
        """Make the file system of a server read-only in all mount namespaces; no device can be taken away from it.

        Raises Unavailable while a process has a file open for writing. Other errors are logged: a server that does not
        answer must not keep the mount.
        """
        if await self._programs.find_mount(directory) is None:
            return
        volume = self._programs.volume
        try:
            command = ("mount", "-c", "-o", "remount,ro", "--", directory)
            result = await self._programs.run(command, self._unmount_seconds)
        except TimedOut as error:
            log.warning("Failed to make a volume read-only", volume=volume, err=str(error))
            return
        if result.exit_code != 0 and b"busy" in result.stderr:
            raise self._error("it is in use: a process has a file open and can still write; end the process")
        if result.exit_code != 0:
            log.warning("Failed to make a volume read-only", volume=volume, err=str(result.problem("mount")))

    async def bind(self, directory: str, target: str, *, read_only: bool) -> None:
        """Mount `directory` also on `target`, with the flags of its own mount; succeeds if it is mounted there.

        Raises Conflict if something else is mounted there, and Unavailable if nothing is mounted on `directory`, or the
        mount does not appear as asked.
        """
        base = await self._programs.find_mount(directory)
        present = await self._programs.find_mount(target)
        if base is None:  # the pod would write to the disk of the node
            raise self._error(f"nothing is mounted on {directory} any more; the next call mounts it again")
        if present is not None and not present.has_same_files(base):
            raise self._taken(present.source, target)
        if present is None or present.is_read_only != read_only:
            if present is not None:
                await self.unmount(target)
            # the second step of a read-only bind clears flags of the mount that are not given again
            flags = [option for option in base.options if option in _KEPT_BY_BINDS]
            chosen = ("bind", "ro", *flags) if read_only else ("bind",)
            await self._mount("-o", ",".join(chosen), "--", directory, target)
        made = await self._programs.find_mount(target)
        if made is None or made.is_read_only < read_only:
            raise self._not_there(target, "in the kubelet's mount namespace" if made is None else "read-only")

    async def bind_device(self, device: str, target: str) -> None:
        """Mount the file of a device on the file `target`; succeeds if it is mounted there.

        Raises Conflict if something else is mounted there.
        """
        present = await self._programs.find_mount(target)
        if present is not None and present.device_path != device:
            raise self._taken(present.device_path or present.source, target, f", not {device}")
        if present is None:
            await self._mount("--bind", "--", device, target)
            if await self._programs.find_mount(target) is None:
                raise self._not_there(target, "in the kubelet's mount namespace")

    async def unmount(self, path: str, *, lazy: bool = False) -> None:
        """Unmount everything that is mounted on `path`. `lazy`: also while it is in use.

        Raises Unavailable if it is in use, and TimedOut if the program hangs.
        """
        for _ in range(_MAX_STACKED):
            present = await self._programs.find_mount(path)
            if present is None:
                return
            # With -c umount does not look the path up, which hangs with a dead file system.
            command = ["umount", "-c", *(["-f", "-l"] if lazy else []), "--", present.target]
            result = await self._programs.run(command, self._unmount_seconds)
            if result.exit_code != 0 and await self._programs.find_mount(path) is not None:
                raise self._failed(result)
        raise self._error(f"more than {_MAX_STACKED} mounts are on {path}; unmount them")

    async def set_group(self, directory: str, group: int) -> None:
        """Give the top directory of a volume to a group, which may write; new files get the group from its setgid bit.

        Programs do this, since the file system may hang.
        """
        for command in (["chgrp", "--", str(group), directory], ["chmod", "--", "g+rwxs", directory]):
            result = await self._programs.run(command, _GROUP_SECONDS)
            if result.exit_code != 0:
                raise self._failed(result)

    async def _mount(self, *arguments: str) -> None:
        result = await self._programs.run(["mount", "-c", *arguments], self._mount_seconds)
        if result.exit_code != 0:
            raise self._failed(result)

    def _failed(self, result: ProgramResult) -> Unavailable:
        return result.problem(f"volume {self._programs.volume}", Event.FAILED_MOUNT)

    def _taken(self, source: str, path: str, but: str = "") -> KubeletxError:
        return volume_error(
            Conflict, self._programs.volume, f"{source} is mounted on {path}{but}; unmount it"
        )

    def _not_there(self, path: str, where: str) -> KubeletxError:
        return self._error(f"the mount on {path} is not {where}; see option --mount-namespace-of")

    def _error(self, problem: str) -> KubeletxError:
        return volume_error(Unavailable, self._programs.volume, problem)
