"""Rotation of container logs (kubelet I8): at most 10 MiB a file and 5 files, looked at every 10 s.

    web/0.log                         what the unit writes
    web/0.log.20261120-120000         the newest rotated one, readable as it is
    web/0.log.20261120-110000.gz      older ones

The file is renamed and the runtime told to open its path anew; if that fails the name is given back, so
that not a line is lost. An agent that ended between the two is made up for at the next look. What is to be removed or packed is decided purely, by names alone.
"""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import Blocking, Clock, KubeletxError

log = structlog.get_logger(__name__)

_PACKED: Final = ".gz"
_UNFINISHED: Final = ".tmp"


class RotationLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`max_files` counts the one that is written to; at least 2."""

    max_size_bytes: int = 10 * 1024 * 1024
    max_files: int = 5
    interval_seconds: float = 10.0


class OpenLog(msgspec.Struct, frozen=True, kw_only=True):
    """The log of a running unit. `reopen`: the runtime's reopen_log for it."""

    path: Path
    reopen: Callable[[], Awaitable[None]]
    pod: str = ""
    container: str = ""


class Housekeeping(msgspec.Struct, frozen=True, kw_only=True):
    """File names to remove, and to pack, before the next rotation."""

    remove: tuple[str, ...] = ()
    pack: tuple[str, ...] = ()


def plan_housekeeping(name: str, present: Iterable[str], max_files: int) -> Housekeeping:
    """What to do with the rotated files of log `name`, given all names of its directory.

    Afterwards there is room for one more rotated file beside the one that is written to.
    """
    rotated = sorted(one for one in present if one.startswith(f"{name}."))
    unfinished = [one for one in rotated if one.endswith(_UNFINISHED)]
    twice = [one for one in rotated if f"{one}{_PACKED}" in rotated]
    kept = [one for one in rotated if one not in unfinished and one not in twice]
    excess = kept[: max(0, len(kept) - max(0, max_files - 2))]
    remaining = kept[len(excess) :]
    return Housekeeping(
        remove=(*unfinished, *twice, *excess),
        pack=tuple(one for one in remaining if not one.endswith(_PACKED)),
    )


def rotated_name(name: str, now: datetime) -> str:
    """Name of the file that `name` becomes; such names sort by time."""
    return f"{name}.{now:%Y%m%d-%H%M%S}"


def tidy(path: Path, limits: RotationLimits) -> None:
    """Remove and pack rotated files of one log. Blocking."""
    directory = path.parent
    plan = plan_housekeeping(path.name, os.listdir(directory), limits.max_files)
    for name in plan.remove:
        (directory / name).unlink(missing_ok=True)
    for name in plan.pack:
        pack(directory / name)


def pack(path: Path) -> None:
    """Replace a file by its gzip form; a crash leaves one of the two whole. Blocking."""
    unfinished = path.with_name(f"{path.name}{_PACKED}{_UNFINISHED}")
    with open(path, "rb") as plain, open(unfinished, "wb") as target:
        os.fchmod(target.fileno(), path.stat().st_mode & 0o777)
        with gzip.GzipFile(filename="", fileobj=target, mode="wb", compresslevel=6, mtime=0) as packed:
            shutil.copyfileobj(plain, packed, 1024 * 1024)
    unfinished.rename(path.with_name(f"{path.name}{_PACKED}"))
    path.unlink()


class LogRotator:
    """Rotates the logs of all running units, one after the other."""

    def __init__(self, *, blocking: Blocking, clock: Clock, limits: RotationLimits | None = None) -> None:
        self._blocking = blocking
        self._clock = clock
        self._limits = limits or RotationLimits()

    async def run(self, logs: Callable[[], Iterable[OpenLog]]) -> None:
        """Look at the logs again and again, until cancelled. `logs`: those of all running units, now."""
        while True:
            await self._clock.sleep(self._limits.interval_seconds)
            await self.rotate_all(list(logs()))

    async def rotate_all(self, logs: Sequence[OpenLog]) -> None:
        """Rotate every log that is too large. A failure is logged and concerns that log alone."""
        try:
            due = await self._blocking(_find_due, logs, self._limits.max_size_bytes)
        except KubeletxError as err:
            log.warning("Skipped log rotation", err=str(err))
            return
        for one in due:
            try:
                await self._rotate(one)
            except (KubeletxError, OSError) as err:
                log.warning(
                    "Failed to rotate log",
                    pod=one.pod,
                    container=one.container,
                    path=str(one.path),
                    err=str(err),
                )

    async def _rotate(self, one: OpenLog) -> None:
        if not await self._blocking(one.path.exists):
            await one.reopen()  # only that was left to do
            log.info("Finished log rotation", pod=one.pod, container=one.container, path=str(one.path))
            return
        await self._blocking(tidy, one.path, self._limits)
        rotated = one.path.with_name(rotated_name(one.path.name, self._clock.now()))
        if not await self._blocking(_rename_to_free_name, one.path, rotated):
            return
        try:
            await one.reopen()
        except KubeletxError:
            await self._blocking(_rename_to_free_name, rotated, one.path)
            raise
        log.debug("Rotated log", pod=one.pod, container=one.container, path=str(one.path))


def _find_due(logs: Sequence[OpenLog], max_size: int) -> list[OpenLog]:
    return [one for one in logs if _is_due(one.path, max_size)]


def _is_due(path: Path, max_size: int) -> bool:
    """Too large, or renamed and not begun anew: then the runtime still writes to the file by its other name."""
    try:
        return path.stat().st_size > max_size
    except OSError:  # without a renamed file it is not written yet, or gone with its pod
        return any(path.parent.glob(f"{path.name}.*"))


def _rename_to_free_name(source: Path, target: Path) -> bool:
    """Whether it was renamed; never over another file."""
    if target.exists():
        return False
    source.rename(target)
    return True
