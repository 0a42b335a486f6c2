"""Creates missing system directories that labs need as mount points, and removes them later.

A lab mounts on these directories in its own mount namespace. Created directories are recorded in a file; only
recorded and empty ones are removed, when no lab needs them. Labs in several processes share the record; a
lock lets only one process at a time change it.
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from .images import default_cache_dir


@contextlib.contextmanager
def making(directories: Iterable[str], *, records: Path | None = None) -> Iterator[None]:
    """Create those of `directories` that are missing. Until the end of the block no process removes any of them.

    `records`: file in which created directories are recorded; None: a file beside the user's cache of images.
    """
    with _locked(records) as path:
        missing = [directory for directory in directories if not Path(directory).is_dir()]
        if missing:
            with path.open("a") as file:
                file.writelines(f"{one}\n" for one in missing)
        for one in missing:
            Path(one).mkdir(parents=True, exist_ok=True)
        yield


def remove_unused(in_use: Callable[[], bool], *, records: Path | None = None) -> None:
    """Remove the recorded directories that are empty, unless `in_use` returns True.

    `records`: as in `making`.
    """
    with _locked(records) as path:
        if in_use():
            return
        kept = [line for line in _read(path) if not _is_removed(line)]
        path.write_text("".join(f"{line}\n" for line in kept))


def _is_removed(directory: str) -> bool:
    try:
        Path(directory).rmdir()
    except FileNotFoundError:
        return True
    except OSError:  # it is not empty
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
