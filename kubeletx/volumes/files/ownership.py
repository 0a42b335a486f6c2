"""Applies a pod's fsGroup to the files of a volume (V8 in docs/kubelet-parity.md).

Every file and directory gets this group, with read and write permission unless the volume is read-only; new entries of
directories inherit the group (setgid). Other pods may use the volume at the same time: links are never followed, even
if one replaces a file meanwhile, and entries that vanish are skipped. Source: kubelet, pkg/volume/volume_linux.go.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import Final

from .held import walk

_READ_ONLY: Final = 0o440
_READ_WRITE: Final = 0o660
_DIRECTORY: Final = stat.S_ISGID | 0o110


def set_group(
    path: Path, group: int | None, *, read_only: bool = False, only_on_mismatch: bool = False
) -> None:
    """Set the group of `path` and of everything below it, with the permissions of the module docstring.

    `group`: numeric group id; None: do nothing. `read_only`: the group gets read permission only. `only_on_mismatch`:
    do nothing if group and mode of `path` itself are already right. Raises OSError.
    """
    if group is None:
        return
    if only_on_mismatch and _is_right(os.lstat(path), group, read_only):
        return

    def change(directory: int, entry: os.DirEntry[str]) -> bool:
        _change(entry.name, directory, group, read_only)
        return True

    walk(path, change)
    _change(str(path), None, group, read_only)


def group_mode(mode: int, group: int | None) -> int:
    """Return `mode` with the bits that let `group` use a new directory; `mode` unchanged if `group` is None."""
    return mode if group is None else mode | _READ_WRITE | _DIRECTORY


def _change(name: str, dir_fd: int | None, group: int, read_only: bool) -> None:
    try:
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:  # containers may remove files during the walk
        return
    try:
        mode = os.fstat(fd).st_mode
        if stat.S_ISLNK(mode):
            with contextlib.suppress(FileNotFoundError):
                os.chown(name, -1, group, dir_fd=dir_fd, follow_symlinks=False)
            return
        held = f"/proc/self/fd/{fd}"  # the name may be a link by now, the descriptor is not
        os.chown(held, -1, group)
        os.chmod(held, stat.S_IMODE(mode) | _mask(mode, read_only))
    finally:
        os.close(fd)


def _is_right(status: os.stat_result, group: int, read_only: bool) -> bool:
    mask = _mask(status.st_mode, read_only)
    return status.st_gid == group and stat.S_IMODE(status.st_mode) & mask == mask


def _mask(mode: int, read_only: bool) -> int:
    mask = _READ_ONLY if read_only else _READ_WRITE
    return mask | _DIRECTORY if stat.S_ISDIR(mode) else mask
