"""Reads environment files that a container wrote to an emptyDir (fileKeyRef, kubelet E3).

    # a comment
    NAME='text, taken as it is, over
    several lines if need be'   # another comment
    EMPTY=

Only text in single quotes is a value; nothing in it is expanded. Since a container wrote the file, it is read
without following links out of its volume, and only up to a size limit. Source: KEP-3721.
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
"""Maximum of files for the variables of one container; each blocks the event loop for a moment."""

_SKIPPED: Final = re.compile(r"[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_ASSIGNMENT: Final = re.compile(r"[ \t]*([^\s='#]+)=(?:'([^']*)')?[ \t]*(?:#[^\n]*)?(?:\n|\Z)")
_EMPTY: Final = re.compile(r"[ \t]*([^\s='#]+)=[ \t][^\n]*(?:\n|\Z)")


def parse_env_file(text: str) -> dict[str, str]:
    """Return name → value; if a name occurs twice, the last value is used.

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
    """Reader of the environment files of one container; reads each file once and at most `MAX_FILES`
    different ones.
    """

    def __init__(self, root_dir: Path, uid: PodUid) -> None:
        self._root_dir, self._uid = root_dir, uid
        self._read: dict[tuple[str, str], dict[str, str] | None] = {}

    def read(self, volume: str, path: str) -> dict[str, str] | None:
        """Return what `read_env_file` returns, from memory after the first call.

        Raises ValueError also if the container names more than `MAX_FILES` files.
        """
        key = (volume, path)
        if key not in self._read:
            if len(self._read) >= MAX_FILES:
                raise ValueError(f"is one more than the {MAX_FILES} files that a container may name")
            self._read[key] = read_env_file(self._root_dir, self._uid, volume, path)
        return self._read[key]


def read_env_file(root_dir: Path, uid: PodUid, volume: str, path: str) -> dict[str, str] | None:
    """Return the variables of a file in an emptyDir of the pod; None if the file does not exist.

    Blocks for a short time. Raises ValueError for an invalid file and OSError for an unreadable one.
    """
    directory = layout.volume_dir(root_dir, uid, layout.EMPTY_DIR, volume)
    try:
        with open_beneath(directory, path) as place:
            found = os.fstat(place)
            # Looked at before it is opened: opening a device is enough to start a watchdog or to move a tape.
            if not stat.S_ISREG(found.st_mode):
                raise ValueError("is not a regular file")
            if found.st_size > MAX_FILE_BYTES:
                raise ValueError(f"has {found.st_size} bytes, more than {MAX_FILE_BYTES}")
            with Path(f"/proc/self/fd/{place}").open("rb") as file:
                data = file.read(MAX_FILE_BYTES)
    except FileNotFoundError:
        return None
    try:
        return parse_env_file(data.decode())
    except UnicodeDecodeError as err:
        raise ValueError("is not UTF-8 text") from err
