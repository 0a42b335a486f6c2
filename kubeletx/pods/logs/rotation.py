"""Rotation of container logs (I8 in docs/kubelet-parity.md): by default 10 MiB a file and 5 files, checked every 10 s.

    web/0.log                         the current log, which the runtime writes
    web/0.log.20261120-120000         the newest rotated file, not compressed
    web/0.log.20261120-110000.gz      older rotated files

The current log is renamed and the runtime is asked to reopen its path; if that fails the file gets its name back, so
that no line is lost. A rotation that a crash interrupted is finished at the next check. Only the names of files decide
which files are removed or compressed.

A pod with a hostPath can write to these directories: only regular files are rotated and packed, no link is followed.
"""

from __future__ import annotations

import enum
import gzip
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from stat import S_ISREG
from typing import Final

import msgspec
import structlog

from kubeletx.api import Blocking, Clock, KubeletxError
from kubeletx.volumes.files.held import HeldDirectory, hold_directory

log = structlog.get_logger(__name__)

_PACKED: Final = ".gz"
_UNFINISHED: Final = ".tmp"
_LARGEST_PACKED_BYTES: Final = 1 << 30
"""Larger files are not compressed, since a sparse file would keep a thread busy for hours; they are removed in turn."""


class RotationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of rotation: size of a file and number of files of one log.

    `max_files` includes the current file and is at least 2. `interval_seconds`: time between checks.
    """

    max_size_bytes: int = 10 * 1024 * 1024
    max_files: int = 5
    interval_seconds: float = 10.0


class OpenLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a running container. `reopen`: calls the runtime's reopen_log. `pod`, `container`: for messages."""

    path: Path
    reopen: Callable[[], Awaitable[None]]
    pod: str = ""
    container: str = ""


class Housekeeping(msgspec.Struct, frozen=True, kw_only=True):
    """Names of rotated files to remove, and of those to compress, before the next rotation."""

    remove: tuple[str, ...] = ()
    pack: tuple[str, ...] = ()


def plan_housekeeping(name: str, present: Iterable[str], max_files: int) -> Housekeeping:
    """Decide which rotated files of the log `name` to remove and which to compress before its next rotation.

    `present`: all names in its directory. `max_files`: see `RotationLimits`. So many files are removed that the limit
    holds after the rotation.
    """
    rotated = sorted(file for file in present if file.startswith(f"{name}."))
    # Both are left by a crash: an incomplete copy, and a file whose copy is complete.
    unfinished = [file for file in rotated if file.endswith(_UNFINISHED)]
    twice = [file for file in rotated if f"{file}{_PACKED}" in rotated]
    kept = [file for file in rotated if file not in unfinished and file not in twice]
    excess = kept[: max(0, len(kept) - max(0, max_files - 2))]
    remaining = kept[len(excess) :]
    return Housekeeping(
        remove=(*unfinished, *twice, *excess),
        pack=tuple(file for file in remaining if not file.endswith(_PACKED)),
    )


def rotated_name(name: str, now: datetime) -> str:
    """Return the name that the log `name` gets when it is rotated at `now`; these names sort by time."""
    return f"{name}.{now:%Y%m%d-%H%M%S}"


def tidy(directory: HeldDirectory, name: str, limits: RotationLimits) -> None:
    """Remove and compress rotated files of the log `name` in `directory`, as `plan_housekeeping` decides. Blocking.

    A failure to compress is logged; the file stays as it is.
    """
    plan = plan_housekeeping(name, directory.files(f"{name}."), limits.max_files)
    for file in plan.remove:
        directory.unlink(file)
    for file in plan.pack:
        try:
            pack(directory, file)
        except OSError as err:
            log.warning("Failed to pack rotated log", path=str(directory.path / file), err=err.strerror)


def pack(directory: HeldDirectory, name: str) -> None:
    """Replace the file `name` by ``<name>.gz``; after a crash at least one of both is complete. Blocking.

    Does nothing with a file above 1 GiB.
    """
    unfinished = f"{name}{_PACKED}{_UNFINISHED}"
    with os.fdopen(directory.open(name), "rb") as plain:
        status = os.fstat(plain.fileno())
        if status.st_size > _LARGEST_PACKED_BYTES:
            return
        with (
            os.fdopen(directory.replace(unfinished, status.st_mode & 0o777), "wb") as target,
            gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=6, mtime=0) as packed,
        ):
            shutil.copyfileobj(plain, packed, 1024 * 1024)
    directory.rename(unfinished, f"{name}{_PACKED}")
    directory.unlink(name)


class LogRotator:
    """Rotates the logs of running containers, one after the other."""

    def __init__(self, *, blocking: Blocking, clock: Clock, limits: RotationLimits | None = None) -> None:
        self._blocking = blocking
        self._clock = clock
        self._limits = limits or RotationLimits()

    async def run(self, logs: Callable[[], Iterable[OpenLog]]) -> None:
        """Check the logs at each interval, until cancelled. `logs`: returns the logs of all containers that run now."""
        while True:
            await self._clock.sleep(self._limits.interval_seconds)
            await self.rotate_all(list(logs()))

    async def rotate_all(self, logs: Sequence[OpenLog]) -> None:
        """Rotate every log that is too large. If one fails, that is logged, and the others are still rotated."""
        try:
            due = await self._blocking(_find_due, logs, self._limits.max_size_bytes)
        except KubeletxError as err:
            log.warning("Skipped log rotation", err=str(err))
            return
        for log_file in due:
            try:
                await self._rotate(log_file)
            except (KubeletxError, OSError) as err:
                log.warning(
                    "Failed to rotate log",
                    pod=log_file.pod,
                    container=log_file.container,
                    path=str(log_file.path),
                    err=str(err),
                )

    async def _rotate(self, log_file: OpenLog) -> None:
        rotated = rotated_name(log_file.path.name, self._clock.now())
        match await self._blocking(_rename, log_file.path, rotated, self._limits):
            case _Renamed.MISSING:
                await log_file.reopen()  # completes an interrupted rotation
                log.info(
                    "Finished log rotation",
                    pod=log_file.pod,
                    container=log_file.container,
                    path=str(log_file.path),
                )
                return
            case _Renamed.NO:
                return
        try:
            await log_file.reopen()
        except KubeletxError:
            await self._blocking(_rename_back, log_file.path, rotated)
            raise
        log.debug("Rotated log", pod=log_file.pod, container=log_file.container, path=str(log_file.path))


def _find_due(logs: Sequence[OpenLog], max_size: int) -> list[OpenLog]:
    return [log_file for log_file in logs if _is_due(log_file.path, max_size)]


def _is_due(path: Path, max_size: int) -> bool:
    """Return True if the log is too large, or if an interrupted rotation must be finished.

    A rotation was interrupted if the log was renamed but not reopened; the runtime still writes to the renamed file.
    """
    try:
        with hold_directory(path.parent) as directory:
            status = directory.stat(path.name)
            if status is None:  # without a renamed file it is not written yet
                return bool(directory.files(f"{path.name}."))
            return S_ISREG(status.st_mode) and status.st_size > max_size
    except OSError:  # the directory is gone with its pod, or a link replaced it
        return False


class _Renamed(enum.Enum):
    YES = enum.auto()
    NO = enum.auto()
    MISSING = enum.auto()


def _rename(path: Path, rotated: str, limits: RotationLimits) -> _Renamed:
    with hold_directory(path.parent) as directory:
        if directory.stat(path.name) is None:
            return _Renamed.MISSING
        tidy(directory, path.name, limits)
        return _Renamed.YES if rename_to_free_name(directory, path.name, rotated) else _Renamed.NO


def _rename_back(path: Path, rotated: str) -> None:
    with hold_directory(path.parent) as directory:
        rename_to_free_name(directory, rotated, path.name)


def rename_to_free_name(directory: HeldDirectory, source: str, target: str) -> bool:
    """Rename `source` to `target` and return True; if `target` exists, do nothing and return False."""
    if directory.stat(target) is not None:
        return False
    directory.rename(source, target)
    return True
