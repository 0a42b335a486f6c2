"""Finds and removes mounts below a directory, and makes a directory a shared mount."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from kubeletx.linux.mounts import mounts_below, read_mounts

from .process import run
from .tools import get_tool

_MNT_DETACH = 2
_UMOUNT_NOFOLLOW = 8


def list_mounts(base_dir: Path) -> list[str]:
    """Return the mount points below `base_dir`, deepest first.

    Of several at the same depth, the latest comes first.
    """
    points = [mount.target for mount in mounts_below(read_mounts(base_dir), base_dir)]
    points.reverse()
    return sorted(points, key=lambda point: -point.count("/"))


def unmount_below(base_dir: Path) -> None:
    """Unmount everything below `base_dir`. A mount that is in use is detached (lazy unmount)."""
    libc = ctypes.CDLL(None, use_errno=True)
    for _ in range(20):
        points = list_mounts(base_dir)
        if not points:
            return
        for point in points:
            libc.umount2(os.fsencode(point), _MNT_DETACH | _UMOUNT_NOFOLLOW)


def make_shared(directory: Path) -> None:
    """Bind-mount a directory on itself as a shared mount.

    Mount namespaces that are created afterwards then see later mounts below the directory.
    """
    for option in ("--bind", "--make-shared"):
        targets = [str(directory)] * (2 if option == "--bind" else 1)
        run(get_tool("mount"), option, *targets)
