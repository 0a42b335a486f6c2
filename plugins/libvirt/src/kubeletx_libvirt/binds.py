"""Bind mounts on the node, for what cannot be shared as it stands; found again in the mount table. Blocking.

Other mount namespaces, such as one that libvirtd has, get a copy of each mount as it is when it appears; what is
changed of it later never reaches them (mount_namespaces(7)). A read-only mount is therefore made aside, where nothing
is shared, and appears at its place read-only from the first moment.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from pathlib import Path
from typing import Final

from kubeletx.api import Unavailable

_SECONDS: Final = 20
_MOUNTS: Final = Path("/proc/self/mounts")
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def mounts_below(directory: Path) -> dict[str, bool]:
    """Mount points below it → whether they are read-only. Links in the names are resolved, as in the mount table."""
    prefix = f"{os.path.realpath(directory)}/"
    # In bytes: names may hold what Python takes for the end of a line.
    lines = [line.split(b" ") for line in _MOUNTS.read_bytes().split(b"\n")]
    points = (
        (_unescape(os.fsdecode(words[1])), b"ro" in words[3].split(b",")) for words in lines if len(words) > 3
    )
    return {point: is_read_only for point, is_read_only in points if point.startswith(prefix)}


def bind(source: str, point: str, *, aside: Path | None = None) -> None:
    """Mount `source` on `point`; `aside`: read-only, made in this place first, which is of the same kind.

    Raises Unavailable with what the kernel says.
    """
    if aside is None:
        _run("mount", "--bind", source, point)
        return
    unbind(str(aside))  # of one who was interrupted
    make_place(aside, source)
    try:
        # Private: else what happens on a part of the same mount happens here too.
        _run("mount", "--bind", "--make-private", source, str(aside))
        _run("mount", "-o", "remount,bind,ro", str(aside))
        _run("mount", "--bind", str(aside), point)
    finally:
        unbind(str(aside))
        remove_place(aside)


def make_place(place: Path, source: str) -> None:
    """Something empty to mount `source` on; what is there stays."""
    if os.path.isdir(source):
        place.mkdir(mode=0o755, exist_ok=True)
    else:
        place.touch()


def remove_place(place: Path) -> None:
    """Remove it; succeeds if it is gone. Raises Unavailable if it is not empty: then it is not ours alone."""
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
        raise Unavailable(f"{place} was left alone: {error.strerror}; look what is in it") from error


def unbind(point: str) -> None:
    """Take away every mount on `point`; succeeds if there is none."""
    real = os.path.realpath(point)
    while real in mounts_below(Path(real).parent):
        _run("umount", "--lazy", real)


def _unescape(text: str) -> str:
    """The mount table writes blanks and backslashes as octal numbers."""
    return _ESCAPED.sub(lambda match: chr(int(match[1], 8)), text)


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{' '.join(command)}: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().split("\n")
        raise Unavailable(said[0] or f"{' '.join(command)} failed")
