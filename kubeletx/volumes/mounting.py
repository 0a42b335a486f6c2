"""Mounts and unmounts with mount(2) and umount2(2) through libc; nfs, which needs a helper program, with mount(8).

The rest of this package uses the protocol `Mounter`, so that tests need no root. All calls block; run them on threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from kubeletx.api import KubeletxError, PermissionDenied, TimedOut, Unavailable
from kubeletx.api.names import Event
from kubeletx.linux.libc import call
from kubeletx.linux.mounts import MountPoint, read_mounts
from kubeletx.linux.programs import Ending, run_blocking

from .files.ownership import group_mode

MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 0x40000
MS_SHARED: Final = 0x100000
UMOUNT_NOFOLLOW: Final = 0x8

MEMORY_MODE: Final = 0o1777
"""Mode of a new tmpfs: the kernel's default, which the kubelet uses too."""
HELPER_SECONDS: Final = 110.0
_LEAVES_DAEMON: Final = Ending(leaves_daemon=True)
"""A helper of a file system in user space leaves the process that serves it."""


class Mounter(Protocol):
    """Interface for changing and listing mounts; implemented by `LinuxMounter` and by fakes in tests."""

    def mount(self, source: str, target: Path, *, fstype: str = "", flags: int = 0, data: str = "") -> None:
        """Mount `source` on `target`, with the arguments of mount(2). Raises OSError."""
        ...

    def mount_by_helper(self, source: str, target: Path, *, fstype: str, options: Sequence[str] = ()) -> None:
        """Mount `source` on `target` with mount(8), for file system types that need a helper program (nfs).

        Raises Unavailable with the program's error message.
        """
        ...

    def unmount(self, target: Path) -> None:
        """Unmount the topmost mount on `target`; succeeds if there is none.

        Raises OSError, with EBUSY while it is in use.
        """
        ...

    def mounts(self, below: Path | None = None) -> tuple[MountPoint, ...]:
        """Return the present mounts, in mount order.

        `below`: only mounts on this path and below it are needed; others may be returned too. None: return all.
        """
        ...


class LinuxMounter:
    """Implements `Mounter` for the mount namespace of this process."""

    def __init__(self, helper_seconds: float = HELPER_SECONDS) -> None:
        """`helper_seconds`: deadline of one mount by a helper."""
        self._helper_seconds = helper_seconds

    def mount(self, source: str, target: Path, *, fstype: str = "", flags: int = 0, data: str = "") -> None:
        where, kind, options = os.fsencode(target), fstype.encode() or None, data.encode() or None
        call("mount", os.fsencode(source), where, kind, flags, options, path=target)

    def mount_by_helper(self, source: str, target: Path, *, fstype: str, options: Sequence[str] = ()) -> None:
        chosen = ["-o", ",".join(options)] if options else []
        command = ["mount", "-t", fstype, *chosen, "--", source, str(target)]
        try:
            done = run_blocking(command, seconds=self._helper_seconds, ending=_LEAVES_DAEMON)
        except TimedOut as err:
            raise Unavailable(
                f"mounting {source} took longer than {self._helper_seconds:g} s; its server may be away",
                reason=Event.FAILED_MOUNT,
            ) from err
        if done.exit_code != 0:
            raise Unavailable(
                f"mounting {source} failed with exit status {done.exit_code}: {done.text}; "
                + (
                    "the node needs mount.nfs, and the server must answer"
                    if fstype == "nfs"
                    else "the kernel's log may say more"
                ),
                reason=Event.FAILED_MOUNT,
            )

    def unmount(self, target: Path) -> None:
        try:
            call("umount2", os.fsencode(target), UMOUNT_NOFOLLOW, path=target)
        except OSError as error:
            if error.errno not in {errno.EINVAL, errno.ENOENT}:  # not a mount point, or not there
                raise

    def mounts(self, below: Path | None = None) -> tuple[MountPoint, ...]:
        return read_mounts(below)


def mount_tmpfs(mounter: Mounter, target: Path, *, size_bytes: int = 0, group: int | None = None) -> None:
    """Mount a tmpfs on `target`, without swap if the kernel supports that (Linux 6.4). Raises OSError.

    `size_bytes`: size limit; 0: the kernel's default, half of the memory. `group`: group id that may read and write;
    None: no group is set.
    """
    options = [f"mode={group_mode(MEMORY_MODE, group):o}"]
    options += [f"size={size_bytes}"] if size_bytes > 0 else []
    options += [f"gid={group}"] if group is not None else []
    try:
        mounter.mount("tmpfs", target, fstype="tmpfs", data=",".join([*options, "noswap"]))
    except OSError as err:
        if err.errno != errno.EINVAL:
            raise
        mounter.mount("tmpfs", target, fstype="tmpfs", data=",".join(options))


def ensure_shared(mounter: Mounter, directory: Path) -> None:
    """Make mounts below `directory` propagate to other mount namespaces, as Bidirectional mounts need.

    Requires root. If the mount that contains the directory is not shared, the directory is bind-mounted on
    itself and that mount is made shared.
    """
    real = directory.resolve()
    holder = max(
        (mount for mount in mounter.mounts() if real.is_relative_to(mount.target)),
        key=lambda mount: (len(mount.target), mount.id),
        default=None,
    )
    if holder is not None and holder.is_shared:
        return
    if holder is None or holder.target != str(real):
        mounter.mount(str(real), real, flags=MS_BIND | MS_REC)
    mounter.mount("none", real, flags=MS_SHARED)


def mount_error(what: str, err: OSError) -> KubeletxError:
    """Translate `err` to a KubeletxError with reason FailedMount.

    `what`: text at the beginning of the message, such as the volume or the failed step.
    """
    text = f"{what}: {err.strerror}" + (f" ({err.filename})" if err.filename else "")
    if err.errno in {errno.EPERM, errno.EACCES}:
        return PermissionDenied(f"{text}; the agent needs root for this", reason=Event.FAILED_MOUNT)
    return Unavailable(text, reason=Event.FAILED_MOUNT)
