"""hostPath volumes: a path of the node, checked or created by `type` (V7 in docs/kubelet-parity.md)."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from typing import Final

from kubeletx.api import SourceKind, Unavailable
from kubeletx.api.names import Event
from kubeletx.kube.types.core import HostPathVolumeSource

from ..prepared import PreparedVolume, SetUp, VolumeError

DIRECTORY_MODE: Final = 0o755
FILE_MODE: Final = 0o644

_CHECKS: Final[dict[str, tuple[str, Callable[[int], bool]]]] = {
    "Directory": ("a directory", stat.S_ISDIR),
    "DirectoryOrCreate": ("a directory", stat.S_ISDIR),
    "File": ("a file", stat.S_ISREG),
    "FileOrCreate": ("a file", stat.S_ISREG),
    "Socket": ("a socket", stat.S_ISSOCK),
    "CharDevice": ("a character device", stat.S_ISCHR),
    "BlockDevice": ("a block device", stat.S_ISBLK),
}


def set_up(request: SetUp) -> PreparedVolume:
    """Check that the path is what `type` requires; create a missing path if `type` ends in OrCreate.

    The agent never removes anything at this path.
    """
    source = request.volume.host_path
    assert source is not None
    path, wanted = source.path, source.type or ""
    if not path.startswith("/") or ".." in path.split("/"):
        raise VolumeError(
            field=f"{request.field}.hostPath.path",
            problem=f"{path!r} is not an absolute path without '..'",
            fix="write the path in full",
        )
    if wanted:
        _check(path, source, wanted, request)
    kind = SourceKind.BLOCK_DEVICE if wanted == "BlockDevice" else SourceKind.DIRECTORY
    return PreparedVolume(name=request.volume.name, kind=kind, source=path, managed=False)


def _check(path: str, source: HostPathVolumeSource, wanted: str, request: SetUp) -> None:
    if wanted not in _CHECKS:
        raise VolumeError(
            field=f"{request.field}.hostPath.type",
            problem=f"{wanted!r} is an invalid volume type",
            fix="use " + ", ".join(_CHECKS),
        )
    words, test = _CHECKS[wanted]
    if wanted.endswith("OrCreate"):
        _create(path, directory=wanted.startswith("Directory"))
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        mode = 0
    if not test(mode):
        raise Unavailable(
            f"{request.field}.hostPath.path: hostPath type check failed: {source.path} is not {words}; "
            "make it, or correct path or type",
            reason=Event.FAILED_MOUNT,
        )


def _create(path: str, *, directory: bool) -> None:
    if os.path.lexists(path):
        return
    if directory:
        os.makedirs(path, mode=DIRECTORY_MODE, exist_ok=True)
        os.chmod(path, DIRECTORY_MODE)
        return
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE)
    except FileExistsError:  # another pod with this path was faster
        return
    os.fchmod(fd, FILE_MODE)
    os.close(fd)
