"""Reads environment files that a container wrote to an emptyDir (fileKeyRef; E3 in docs/kubelet-parity.md).

    # a comment
    NAME='text, taken as it is, over
    several lines if need be'   # another comment
    EMPTY=

A value must be in single quotes; nothing in it is expanded. Since a container wrote the file, it is read without
following links out of the volume, and only up to a size limit. Source: KEP-3721.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Final

from kubeletx.api import PodUid

from . import layout
from .files.safe_paths import open_beneath

MAX_FILE_BYTES: Final = 64 * 1024
MAX_FILES: Final = 32
"""Maximum number of files that one container's variables may use; reading each blocks the event loop shortly."""

_SKIPPED: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_ASSIGNMENT: Final = re.compile(r"[ \t]*([^\s='#]+)=(?:'([^']*)')?[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_EMPTY: Final = re.compile(r"[ \t]*([^\s='#]+)=[ \t][^\n]*(?:\n|\Z)")


def parse_env_file(text: str) -> dict[str, str]:
    """Return the variables of an environment file by name; if a name occurs twice, the last value is used.

    Raises ValueError with the number of an invalid line.
    """
    values: dict[str, str] = {}
    text, position = text.replace("\r\n", "\n"), 0
    while position < len(text):
        if match := _SKIPPED.match(text, position):
            position = match.end()
            continue
        match = _ASSIGNMENT.match(text, position) or _EMPTY.match(text, position)
        if match is None:
            number = text.count("\n", 0, position) + 1
            raise ValueError(f"line {number} is not NAME='value'")
        values[match[1]] = (match[2] if match.re is _ASSIGNMENT else "") or ""
        position = match.end()
    return values


class EnvFiles:
    """Reads environment files for one container: each file once, and at most `MAX_FILES` different ones."""

    def __init__(self, root_dir: Path, uid: PodUid) -> None:
        self._root_dir, self._uid = root_dir, uid
        self._read: dict[tuple[str, str], dict[str, str] | None] = {}

    def read(self, volume: str, path: str) -> dict[str, str] | None:
        """Return the variables of a file, see `read_env_file`; later calls for the same file use the first result.

        Raises ValueError also if the container names more than `MAX_FILES` files.
        """
        key = (volume, path)
        if key not in self._read:
            if len(self._read) >= MAX_FILES:
                raise ValueError(f"is one more than the {MAX_FILES} files that a container may name")
            self._read[key] = read_env_file(self._root_dir, self._uid, volume, path)
        return self._read[key]


def read_env_file(root_dir: Path, uid: PodUid, volume: str, path: str) -> dict[str, str] | None:
    """Return the variables of the file `path` in the pod's emptyDir `volume`; None if the file does not exist.

    Blocks for a short time. Raises ValueError if the file is invalid, and OSError if it cannot be read.
    """
    directory = layout.volume_dir(root_dir, uid, layout.EMPTY_DIR, volume)
    try:
        with open_beneath(directory, path) as place:
            status = os.fstat(place)
            # The type is checked before the open: merely opening a device can start a watchdog or move a tape.
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("is not a regular file")
            if status.st_size > MAX_FILE_BYTES:
                raise ValueError(f"has {status.st_size} bytes, more than {MAX_FILE_BYTES}")
            with Path(f"/proc/self/fd/{place}").open("rb") as file:
                data = file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    try:
        return parse_env_file(data.decode())
    except UnicodeDecodeError as err:
        raise ValueError("is not UTF-8 text") from err
