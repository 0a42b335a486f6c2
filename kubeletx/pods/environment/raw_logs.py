"""Log files that the host writes itself (DECISIONS 18): for runtimes with raw files or with streams.

A raw file goes on growing while the agent is away. Its follower adds format and times, rotates, and notes
after every batch how far it came, and how long the log was then, in ``<n>.raw.offset``; after a crash the
log is cut back to what was noted and the raw bytes after it are read again: no line is lost or doubled.
Space of the raw file that was read is given back to the file system. File work runs on threads.

Somebody else may rotate the raw file (libvirt's virtlogd does: ``<n>.raw`` becomes ``<n>.raw.0``, that ``.1`` and
so on). The note therefore says which file it is about, and a hard link ``<n>.raw.held.<inode>`` keeps that file, and
its number, until it was read to its end; then comes the next younger one. Only files are lost that were removed
before any of them was begun.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import Blocking, Clock

from .file_watch import FileWatcher
from .log_format import LineSplitter
from .logs_rotation import RotationLimits, rotated_name, tidy

RAW_SUFFIX: Final = ".raw"
_HELD: Final = ".held."
_CHUNK: Final = 256 * 1024
_FREE_STEP: Final = 1024 * 1024
_STATE_SECONDS: Final = 5.0
_LOG_MODE: Final = 0o640
_PUNCH_HOLE_KEEP_SIZE: Final = 0x3


def raw_path(log_file: Path) -> Path:
    """Where the runtime writes when the host keeps `log_file`: ``0.log`` becomes ``0.raw``."""
    return log_file.with_suffix(RAW_SUFFIX)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How much of the raw file stands in the log, and how long the log was then. `inode` 0: of ``<n>.raw``."""

    offset: int = 0
    log_size: int = 0
    inode: int = 0


class LogFile:
    """A log in CRI format with rotation. Blocking; one writer."""

    def __init__(self, path: Path, clock: Clock, limits: RotationLimits) -> None:
        self._path, self._clock, self._limits = path, clock, limits
        self._fd = -1
        self.size = 0

    def open(self, size: int | None = None) -> None:
        """Open for appending, in a directory that is there. `size`: cut back to this first, if it is longer."""
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
        self._inode = self._noted = 0
        self._position = 0
        self._freed = 0
        self._work = threading.Lock()
        self._is_over = False

    async def run(self, is_running: Callable[[], bool]) -> None:
        """Follow until the unit has ended and all was read; cancelling is allowed at any time."""
        with self._watcher.watch(self._raw.parent) as changed:
            try:
                while True:
                    changed.clear()
                    running = is_running()
                    if await self._blocking(self._alone, self._step):
                        continue
                    if not running:
                        await self._blocking(self._alone, self._finish)
                        return
                    await self._watcher.wait(changed, _STATE_SECONDS)
            finally:
                self._is_over = True
                self._close_unless_busy()

    def _alone(self, work: Callable[[], bool]) -> bool:
        """Do it, unless all is over. Who was cancelled meanwhile leaves the files to it: their numbers may not go to
        others while it writes."""
        try:
            with self._work:
                return not self._is_over and work()
        finally:
            if self._is_over:
                self._close_unless_busy()

    def _close_unless_busy(self) -> None:
        if self._work.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._work.release()

    def _step(self) -> bool:
        """Move one chunk; False when there was nothing."""
        if self._fd < 0 and not self._open():
            return False
        younger = self._younger()  # before reading: a file that was renamed grows no more
        data = os.pread(self._fd, _CHUNK, self._position)
        if not data:
            return younger is not None and self._follow(younger)
        self._position += len(data)
        self._log.write(self._lines.feed(data, self._now_ns()))
        self._save()
        if self._log.is_full:
            self._log.rotate()
            self._save()
        self._free_space()
        return True

    def _finish(self) -> bool:
        if self._fd >= 0:
            self._log.write(self._lines.finish(self._now_ns()))
            self._save()
        return False

    def _open(self) -> bool:
        progress = self._load()
        files = self._files()
        path, offset = self._find(progress.inode, files), progress.offset
        if path is None and progress.inode == 0 and offset:  # a note of an agent that knew of no rotation
            path = self._raw
        elif path is None and files:  # nothing was read yet
            path, offset = files[0][0], 0
        if path is None or not self._open_raw(path, offset):
            return False
        self._log.open(progress.log_size)
        return True

    def _open_raw(self, path: Path, offset: int) -> bool:
        try:
            fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._inode = os.fstat(fd).st_ino
        with suppress(OSError):  # it is held already, or the file system has no hard links
            os.link(path, self._held(self._inode))
        self._position = offset
        self._freed = offset - offset % _FREE_STEP
        return True

    def _younger(self) -> Path | None:
        """The file to read after this one; None while this is the one that grows."""
        with suppress(FileNotFoundError):  # in the middle of a rotation
            if os.stat(self._raw).st_ino == self._inode:
                return None
        files = self._files()
        at = next((index for index, (_, inode) in enumerate(files) if inode == self._inode), -1)
        return files[at + 1][0] if at + 1 < len(files) else None

    def _follow(self, younger: Path) -> bool:
        """Go on with the next file; a line may begin in one and end in the other."""
        if not self._open_raw(younger, 0):
            return False
        self._save()
        return True

    def _held(self, inode: int) -> Path:
        return self._raw.with_name(f"{self._raw.name}{_HELD}{inode}")

    def _find(self, inode: int, files: list[tuple[Path, int]]) -> Path | None:
        """The file of this number, by the name that it has now."""
        held = self._held(inode)
        return next((path for path, one in files if one == inode), held if inode and held.exists() else None)

    def _let_go(self) -> None:
        """The note is about the present file: those before it are not needed any more."""
        for path in self._raw.parent.glob(f"{self._raw.name}{_HELD}*"):
            if path != self._held(self._inode):
                path.unlink(missing_ok=True)

    def _files(self) -> list[tuple[Path, int]]:
        """The raw file and those it was renamed to, with their inodes, oldest first."""
        found = _look_for(self._raw)
        while (again := _look_for(self._raw)) != found:  # a rotation is under way
            found = again
        return found

    def _load(self) -> Progress:
        try:
            return msgspec.json.decode(self._note.read_bytes(), type=Progress)
        except (FileNotFoundError, msgspec.DecodeError):
            return Progress()

    def _save(self) -> None:
        offset = self._position - len(self._lines.pending)
        if offset < 0:
            return  # a line that began in the file before this one: the note still tells of its beginning
        progress = Progress(offset=offset, log_size=self._log.size, inode=self._inode)
        fresh = self._note.with_name(f"{self._note.name}.new")
        fresh.write_bytes(msgspec.json.encode(progress))
        fresh.rename(self._note)
        if self._noted != self._inode:
            self._let_go()
            self._noted = self._inode

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


def _look_for(raw: Path) -> list[tuple[Path, int]]:
    found: list[tuple[int, Path, int]] = []
    with (
        suppress(FileNotFoundError),
        os.scandir(raw.parent) as entries,
    ):  # no directory: nothing yet, or no more
        for entry in entries:
            name, _, number = entry.name.rpartition(".")
            if entry.name == raw.name or (name == raw.name and number.isdecimal()):
                age = -1 if entry.name == raw.name else int(number)
                with suppress(FileNotFoundError):
                    found.append((age, Path(entry.path), entry.stat(follow_symlinks=False).st_ino))
    return [(path, inode) for _, path, inode in sorted(found, reverse=True)]


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

    def open_file() -> None:
        log_file.parent.mkdir(parents=True, exist_ok=True)
        file.open()

    def append(data: bytes) -> None:
        file.write(data)
        if file.is_full:
            file.rotate()

    await blocking(open_file)
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
