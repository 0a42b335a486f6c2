"""subPath: bind-mounts one file or directory of a volume into the pod's directory (V8 in docs/kubelet-parity.md).

`open_beneath` resolves the path: links inside the volume work, but none leads out of it. The bind mount is made from
the open descriptor, so that the file or directory cannot be exchanged after the check.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import Final

from kubeletx.api import InvalidPod, PermissionDenied
from kubeletx.linux.mounts import find_mount

from . import layout
from .files.safe_paths import make_directories_beneath, make_private, open_beneath, remove_tree
from .mounting import MS_BIND, Mounter, mount_error
from .prepared import PreparedVolume

REASON: Final = "CreateContainerConfigError"


def check_sub_path(text: str, field: str) -> str:
    """Return `text` unchanged if it is empty or a relative path without '..'. Raises InvalidPod otherwise.

    `field`: path in the manifest, for the error.
    """
    if text.startswith("/"):
        problem = f"{text!r} is an absolute path"
    elif ".." in PurePosixPath(text).parts:
        problem = f"{text!r} contains '..'"
    elif "\0" in text:
        problem = f"{text!r} contains a NUL character"
    else:
        return text
    raise InvalidPod(field=field, problem=problem, fix="name a path relative to the volume", reason=REASON)


def prepare_sub_path(
    volume: PreparedVolume,
    sub_path: str,
    place: Path,
    mounter: Mounter,
    *,
    read_only: bool,
    field: str,
) -> str:
    """Bind-mount the subPath of the volume on `place` and return the path to mount into the container.

    A missing path is created as a directory of the volume, unless the volume is read-only. In an optional volume
    (`PreparedVolume.optional`), an empty directory at `place` is used for a missing path, as in a kubelet. Without
    root, nothing is mounted and the resolved path itself is returned. `read_only`: the container's mount is read-only.
    `field`: the volumeMount in the manifest, for errors.
    """
    base = Path(volume.source)
    try:
        if volume.optional and _is_missing(base, sub_path):
            return _empty_directory(base, place, mounter)
        if not (read_only and volume.read_only):
            _make_missing(base, sub_path)
        with open_beneath(base, sub_path) as fd:
            return _bind(fd, place, mounter)
    except OSError as err:
        if err.errno in {errno.EXDEV, errno.ELOOP}:
            raise PermissionDenied(
                f"{field}.subPath: {sub_path!r} leads out of volume {volume.name!r}", reason=REASON
            ) from err
        if err.errno in {errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG}:
            raise InvalidPod(
                field=f"{field}.subPath",
                problem=f"{sub_path!r} is not in volume {volume.name!r}: {err.strerror}",
                fix="correct the path",
                reason=REASON,
            ) from err
        raise mount_error(f"{field}.subPath: {sub_path!r} of volume {volume.name!r}", err) from err


def _is_missing(base: Path, sub_path: str) -> bool:
    try:
        with open_beneath(base, sub_path):
            return False
    except FileNotFoundError:
        return True


def _empty_directory(base: Path, place: Path, mounter: Mounter) -> str:
    """Make an empty directory at `place`, with the mode of the volume `base`, for a path that is missing in it.

    Returns `place`. The volume is not changed, so that the path can appear there before the container's next start.
    """
    if find_mount(mounter.mounts(place), place) is not None:
        mounter.unmount(place)
    make_private(place.parent)
    remove_tree(place)
    place.mkdir()
    place.chmod(stat.S_IMODE(base.stat().st_mode))
    return str(place)


def _make_missing(base: Path, sub_path: str) -> None:
    if _is_missing(base, sub_path):
        make_directories_beneath(base, sub_path, stat.S_IMODE(base.stat().st_mode))


def _bind(fd: int, place: Path, mounter: Mounter) -> str:
    wanted = os.fstat(fd)
    mounted = find_mount(mounter.mounts(place), place) is not None
    if mounted and os.path.samestat(wanted, place.stat()):
        return str(place)
    if mounted:
        mounter.unmount(place)
    make_private(place.parent)
    is_directory = stat.S_ISDIR(wanted.st_mode)
    if place.is_dir() != is_directory:  # an earlier attempt found something else there
        remove_tree(place)
    if is_directory:
        place.mkdir(mode=layout.DIRECTORY_MODE, exist_ok=True)
    else:
        place.touch(mode=0o640)
    try:
        mounter.mount(f"/proc/self/fd/{fd}", place, flags=MS_BIND)
    except OSError as err:
        if err.errno != errno.EPERM or os.geteuid() == 0:
            raise
        return os.readlink(f"/proc/self/fd/{fd}")
    return str(place)
