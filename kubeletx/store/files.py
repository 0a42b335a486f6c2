"""Writes and removes small files so that the change survives a crash.

A file is replaced as a whole, and is on disk when the function returns. Such files contain requests of operators and
other data that must survive the loss of the database. All functions block and raise OSError. An interrupted write
leaves a file ``.<name>.new`` in the same directory, which the next write replaces.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_file(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Create or replace the file at `path` with this content and mode.

    Readers see the old or the new content, never a mixture. When the function returns, the content is on disk. A
    missing parent directory is made, accessible to this user only.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def remove_file(path: Path) -> bool:
    """Remove the file so that it stays removed after a crash, and return True; return False if it did not exist."""
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    sync_directory(path.parent)
    return True


def sync_directory(path: Path) -> None:
    """Fsync a directory, so that renames and removals in it survive a crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
