"""Opens log files of the node below a root directory. Symbolic links in a path must not lead out of the root.

The kernel resolves the path. Then the location of the opened file is checked, not its name: a link that is changed
during the check cannot lead out. Only plain files and directories are opened. All functions block.
"""

from __future__ import annotations

import io
import os
import stat
from itertools import islice
from pathlib import Path

from kubeletx.api import NotFound

CHUNK_BYTES = 1 << 18
MAX_NAMES = 10_000
"""Maximum names listed of a directory: a pod with a hostPath volume may have created any number of files."""


class NodeLogFile:
    """An open log file. It is read up to the size that it had when it was opened."""

    def __init__(self, file: io.FileIO, size: int) -> None:
        self._file = file
        self._at, self._end = 0, size

    def read(self) -> bytes:
        """Return the next piece, at most `CHUNK_BYTES`; empty at the end."""
        data = os.pread(self._file.fileno(), min(CHUNK_BYTES, self._end - self._at), self._at)
        self._at += len(data)
        return data

    def close(self) -> None:
        """Close the file; may be called repeatedly."""
        self._file.close()


def open_log(root: Path, path: str) -> NodeLogFile | list[str]:
    """Open the file at `path` below `root`; for a directory, return the sorted names in it instead.

    Names of directories in the list end in a slash. Raises NotFound if the path does not exist, leads out of
    `root`, or is neither a file nor a directory.
    """
    missing = NotFound("404 page not found")
    if ".." in path.split("/") or "\0" in path:
        raise missing
    try:
        descriptor = os.open(f"{root}/{path}", os.O_PATH | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise missing from error
    try:
        if not _is_below(root, descriptor):
            raise missing
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            return _names(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise missing
        return NodeLogFile(io.FileIO(_reopen(descriptor, os.O_RDONLY)), status.st_size)
    except OSError as error:
        raise missing from error
    finally:
        os.close(descriptor)


def _is_below(root: Path, descriptor: int) -> bool:
    return Path(os.readlink(f"/proc/self/fd/{descriptor}")).is_relative_to(os.path.realpath(root))


def _reopen(descriptor: int, flags: int) -> int:
    return os.open(f"/proc/self/fd/{descriptor}", flags | os.O_CLOEXEC | os.O_NOCTTY)


def _names(directory: int) -> list[str]:
    opened = _reopen(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with os.scandir(opened) as entries:
            return sorted(
                f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                for entry in islice(entries, MAX_NAMES)
            )
    finally:
        os.close(opened)
