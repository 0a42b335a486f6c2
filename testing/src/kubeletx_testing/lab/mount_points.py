"""Directories of the system that a lab needs to mount its own on, in a mount namespace, and that are not there.

They are made, written down, and removed when nobody uses them any more: `in_use` says so. Only what was written
down is removed, and only while it is empty. Labs of several processes share them, one at a time changes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .images import default_cache_dir


@contextlib.contextmanager
def making(directories: Iterable[str], *, records: Path | None = None) -> Iterator[None]:
    """Make those that are missing; nobody removes them before the block ends."""
    with _locked(records) as path:
        missing = [one for one in directories if not os.path.isdir(one)]
        if missing:
            with path.open("a") as file:
                file.writelines(f"{one}\n" for one in missing)
        for one in missing:
            os.makedirs(one, exist_ok=True)
        yield


def remove_unused(in_use: Callable[[], bool], *, records: Path | None = None) -> None:
    """Remove what was made, unless somebody uses it."""
    with _locked(records) as path:
        if in_use():
            return
        kept = [one for one in _read(path) if not _is_removed(one)]
        path.write_text("".join(f"{one}\n" for one in kept))


def _is_removed(directory: str) -> bool:
    try:
        os.rmdir(directory)
    except FileNotFoundError:
        return True
    except OSError:  # something is in it
        return False
    return True


def _read(path: Path) -> list[str]:
    try:
        return list(dict.fromkeys(path.read_text().split()))
    except FileNotFoundError:
        return []


@contextlib.contextmanager
def _locked(records: Path | None) -> Iterator[Path]:
    path = records or default_cache_dir().parent / "mount-points"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield path
