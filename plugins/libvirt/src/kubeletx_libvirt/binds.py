"""Bind mounts on the node, for directories and files that cannot be shared with a guest directly. All calls block.

After a restart of the agent the mounts are found in the mount table. Other mount namespaces, such as
libvirtd's own, get a copy of each mount in the state in which it appears; later changes of the mount never
reach them (mount_namespaces(7)). A read-only mount is therefore first made on a private path and then
bind-mounted from there on its final path. So it is read-only from the moment at which other namespaces can
see it.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from kubeletx.api import TimedOut, Unavailable
from kubeletx.linux.mounts import read_mounts
from kubeletx.linux.programs import run_blocking

_SECONDS: Final = 20


def mounts_below(directory: Path) -> dict[str, bool]:
    """Return the mount points below a directory; the value is True for a read-only mount.

    Symbolic links in `directory` are resolved, since the mount table has resolved paths.
    """
    real = Path(os.path.realpath(directory))
    return {
        mount.target: mount.is_read_only for mount in read_mounts(real) if mount.target.startswith(f"{real}/")
    }


def bind(source: str, point: str, *, aside: Path | None = None) -> None:
    """Bind-mount `source` on `point`, read-only if `aside` is given. Raises Unavailable with the kernel's error.

    `aside`: path of a temporary mount point, which this function makes and removes. The mount becomes
    read-only there before it appears on `point`.
    """
    if aside is None:
        _run("mount", "--bind", source, point)
        return
    unbind(str(aside))  # left by an interrupted call
    make_place(aside, source)
    try:
        # Private: else later mounts below `source` would appear here too.
        _run("mount", "--bind", "--make-private", source, str(aside))
        _run("mount", "-o", "remount,bind,ro", str(aside))
        _run("mount", "--bind", str(aside), point)
    finally:
        unbind(str(aside))
        remove_place(aside)


def make_place(place: Path, source: str) -> None:
    """Make an empty file or directory, of the same type as `source`, as a mount point; an existing one is kept."""
    if os.path.isdir(source):
        place.mkdir(mode=0o755, exist_ok=True)
    else:
        place.touch()


def remove_place(place: Path) -> None:
    """Remove an empty mount point; succeeds if it does not exist.

    Raises Unavailable if it is not empty, since it then contains other data.
    """
    try:
        if place.is_dir():
            place.rmdir()
        elif place.lstat().st_size == 0:
            place.unlink()
        else:
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY))
    except FileNotFoundError:
        return
    except OSError as error:
        raise Unavailable(f"cannot remove {place}: {error.strerror}; check its contents") from error


def unbind(point: str) -> None:
    """Unmount every mount on `point`; succeeds if there is none."""
    real = os.path.realpath(point)
    while real in mounts_below(Path(real).parent):
        _run("umount", "--lazy", real)


def _run(*command: str) -> None:
    try:
        done = run_blocking(command, seconds=_SECONDS, name=" ".join(command))
    except (OSError, TimedOut) as error:
        raise Unavailable(f"{' '.join(command)}: {error}") from error
    if done.exit_code != 0:
        raise Unavailable(done.text or f"{' '.join(command)} failed")
