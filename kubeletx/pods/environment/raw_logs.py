"""Log files that the host writes itself (DECISIONS 18): for runtimes with raw files or with streams.

A raw file goes on growing while the agent is away. Its follower adds format and times, rotates, and notes
after every batch how far it came, and how long the log was then, in ``<n>.raw.offset``; after a crash the
log is cut back to what was noted and the raw bytes after it are read again: no line is lost or doubled.
Space of the raw file that was read is given back to the file system. File work runs on threads.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import Clock

from .file_watch import FileWatcher
from .log_format import LineSplitter
from .log_reader import Blocking
from .logs_rotation import RotationLimits, rotated_name, tidy

RAW_SUFFIX: Final = ".raw"
_CHUNK: Final = 256 * 1024
_FREE_STEP: Final = 1024 * 1024
_STATE_SECONDS: Final = 5.0
_LOG_MODE: Final = 0o640
_PUNCH_HOLE_KEEP_SIZE: Final = 0x3


def raw_path(log_file: Path) -> Path:
    """Where the runtime writes when the host keeps `log_file`: ``0.log`` becomes ``0.raw``."""
    return log_file.with_suffix(RAW_SUFFIX)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the raw file stands in the log, and how long the log was then."""

    offset: int = 0
    log_size: int = 0


class LogFile:
    """A log in CRI format with rotation. Blocking; one writer."""

    def __init__(self, path: Path, clock: Clock, limits: RotationLimits) -> None:
        self._path, self._clock, self._limits = path, clock, limits
        self._fd = -1
        self.size = 0

    def open(self, size: int | None = None) -> None:
        """Open for appending. `size`: cut back to this first, if it is longer."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, _LOG_MODE)
        self.size = os.fstat(self._fd).st_size
        if size is not None and self.size > size:
            os.ftruncate(self._fd, size)
            self.size = size

    @property
    def is_full(self) -> bool:
        """Whether it should be rotated."""
        return self.size > self._limits.max_size_bytes

    def write(self, data: bytes) -> None:
        """Append everything."""
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self.size += written
            view = view[written:]

    def rotate(self) -> None:
        """Begin a new file, unless one was begun in this very second."""
        rotated = self._path.with_name(rotated_name(self._path.name, self._clock.now()))
        if rotated.exists():
            return
        tidy(self._path, self._limits)
        self.close()
        self._path.rename(rotated)
        self.open()

    def close(self) -> None:
        """Free the descriptor; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RawLogFollower:
    """Turns one unit's raw file into its log, until the unit has ended."""

    def __init__(
        self,
        log_file: Path,
        *,
        blocking: Blocking,
        clock: Clock,
        watcher: FileWatcher,
        limits: RotationLimits | None = None,
    ) -> None:
        """`log_file`: the log to write; the raw file stands beside it, see `raw_path`."""
        self._raw = raw_path(log_file)
        self._note = self._raw.with_name(f"{self._raw.name}.offset")
        self._blocking = blocking
        self._clock = clock
        self._watcher = watcher
        self._log = LogFile(log_file, clock, limits or RotationLimits())
        self._lines = LineSplitter()
        self._fd = -1
        self._position = 0
        self._freed = 0

    async def run(self, is_running: Callable[[], bool]) -> None:
        """Follow until the unit has ended and all was read; cancelling is allowed at any time."""
        with self._watcher.watch(self._raw.parent) as changed:
            try:
                while True:
                    changed.clear()
                    running = is_running()
                    if await self._blocking(self._step):
                        continue
                    if not running:
                        await self._blocking(self._finish)
                        return
                    await self._watcher.wait(changed, _STATE_SECONDS)
            finally:
                self._close()

    def _step(self) -> bool:
        """Move one chunk; False when there was nothing."""
        if self._fd < 0 and not self._open():
            return False
        data = os.pread(self._fd, _CHUNK, self._position)
        if not data:
            return False
        self._position += len(data)
        self._log.write(self._lines.feed(data, self._now_ns()))
        self._save()
        if self._log.is_full:
            self._log.rotate()
            self._save()
        self._free_space()
        return True

    def _finish(self) -> None:
        if self._fd >= 0:
            self._log.write(self._lines.finish(self._now_ns()))
            self._save()

    def _open(self) -> bool:
        try:
            self._fd = os.open(self._raw, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        progress = self._load()
        self._position = progress.offset
        self._freed = progress.offset - progress.offset % _FREE_STEP
        self._log.open(progress.log_size)
        return True

    def _load(self) -> Progress:
        try:
            return msgspec.json.decode(self._note.read_bytes(), type=Progress)
        except (FileNotFoundError, msgspec.DecodeError):
            return Progress()

    def _save(self) -> None:
        progress = Progress(offset=self._position - len(self._lines.pending), log_size=self._log.size)
        fresh = self._note.with_name(f"{self._note.name}.new")
        fresh.write_bytes(msgspec.json.encode(progress))
        fresh.rename(self._note)

    def _free_space(self) -> None:
        """Give back what was read, a step at a time; a file system that cannot keeps it."""
        done = self._position - len(self._lines.pending)
        done -= done % _FREE_STEP
        if done > self._freed:
            _punch_hole(self._fd, self._freed, done - self._freed)
            self._freed = done

    def _close(self) -> None:
        self._log.close()
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _now_ns(self) -> int:
        return now_ns(self._clock)


async def keep_stream(
    stream: AsyncIterator[tuple[str, bytes]],
    log_file: Path,
    *,
    blocking: Blocking,
    clock: Clock,
    limits: RotationLimits | None = None,
) -> None:
    """Write a runtime's log stream to `log_file` until it ends."""
    file = LogFile(log_file, clock, limits or RotationLimits())
    lines = {name: LineSplitter(name.encode()) for name in ("stdout", "stderr")}

    def append(data: bytes) -> None:
        file.write(data)
        if file.is_full:
            file.rotate()

    await blocking(file.open)
    try:
        async for name, data in stream:
            await blocking(append, lines[name].feed(data, now_ns(clock)))
        for splitter in lines.values():
            await blocking(append, splitter.finish(now_ns(clock)))
    finally:
        with suppress(OSError):
            file.close()


def now_ns(clock: Clock) -> int:
    """Wall-clock time in nanoseconds since the epoch."""
    moment = clock.now()
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000


def _punch_hole(fd: int, offset: int, length: int) -> None:
    _libc().fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_int64(offset), ctypes.c_int64(length))


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
