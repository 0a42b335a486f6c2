"""Logs that the agent writes itself, for runtimes with log mode raw-file or stream.

See DECISIONS 18 in docs/decisions/answers.md.

A raw file contains the plain output that a runtime writes, also while the agent does not run. `RawLogFollower`
converts it to a log in CRI format and rotates the log. After every batch it saves its position in the raw file and the
log's size in ``<n>.raw.offset``. After a crash the log is truncated to the saved size and the raw file is read again
from the saved position, so that no line is lost or doubled. The disk space of raw bytes that were read is given back to
the file system. File work runs on threads. A pod with a hostPath may be able to write to these directories; therefore
no link is followed and only regular files are opened.

Another process may rotate the raw file. For example, libvirt's virtlogd renames ``<n>.raw`` to ``<n>.raw.0``, that to
``<n>.raw.1`` and so on. The saved position therefore identifies its file by inode. A hard link
``<n>.raw.held.<inode>`` keeps the file and its inode number until the file is read to its end; then the next newer file
is read. A file is lost only if it was removed before the follower opened it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Final

import msgspec

from kubeletx.api import Blocking, Clock
from kubeletx.linux.libc import call
from kubeletx.volumes.files.held import HeldDirectory, hold_directory
from kubeletx.volumes.files.safe_paths import make_private

from .file_watch import FileWatcher
from .format import LineSplitter, raw_path
from .rotation import RotationLimits, rotated_name, tidy

_HELD: Final = ".held."
_CHUNK: Final = 256 * 1024
_FREE_STEP: Final = 1024 * 1024
_STATE_SECONDS: Final = 5.0
_LOG_MODE: Final = 0o640
_DIRECTORY_MODE: Final = 0o755
_NOTE_BYTES: Final = 4096
_NUMBER_DIGITS: Final = 9
_ROTATION_LOOKS: Final = 10
_PUNCH_HOLE_KEEP_SIZE: Final = 0x3


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**62)]


class CopyProgress(msgspec.Struct, frozen=True, kw_only=True):
    """Saved position of a `RawLogFollower`.

    `inode`: inode number of the raw file; 0 means the file that is named ``<n>.raw`` now. `offset`: number of bytes of
    the raw file that are in the log. `log_size`: size of the log in bytes with these.
    """

    offset: _Count = 0
    log_size: _Count = 0
    inode: _Count = 0


class LogFile:
    """A log in CRI format that the agent writes and rotates. Its methods block; one caller at a time."""

    def __init__(self, path: Path, clock: Clock, limits: RotationLimits) -> None:
        self._path, self._clock, self._limits = path, clock, limits
        self._fd = -1
        self.size = 0

    def open(self, directory: HeldDirectory, size: int | None = None) -> None:
        """Open the log for appending, and create it if missing. `size`: truncate a longer file to this many bytes."""
        self._fd = directory.open_or_create(self._path.name, os.O_WRONLY | os.O_APPEND, _LOG_MODE)
        self.size = os.fstat(self._fd).st_size
        if size is not None and self.size > size:
            # The log is written before the position is saved; lines after a crash in between would be there twice.
            os.ftruncate(self._fd, size)
            self.size = size

    @property
    def is_full(self) -> bool:
        """True if the log is larger than the limit and should be rotated."""
        return self.size > self._limits.max_size_bytes

    def write(self, data: bytes) -> None:
        """Append all of `data` to the log."""
        view = memoryview(data)
        while view:
            written = os.write(self._fd, view)
            self.size += written
            view = view[written:]

    def rotate(self, directory: HeldDirectory) -> None:
        """Rename the log and begin a new one; does nothing if the last rotation was in the same second."""
        rotated = rotated_name(self._path.name, self._clock.now())
        # The name has seconds only: a second rotation in the same one would overwrite the first.
        if directory.stat(rotated) is not None:
            return
        tidy(directory, self._path.name, self._limits)
        self.close()
        directory.rename(self._path.name, rotated)
        self.open(directory)

    def close(self) -> None:
        """Close the file; idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RawLogFollower:
    """Writes the log of one container or machine (unit) from its raw file, until the unit has ended."""

    def __init__(
        self,
        log_file: Path,
        *,
        blocking: Blocking,
        clock: Clock,
        watcher: FileWatcher,
        limits: RotationLimits | None = None,
    ) -> None:
        """`log_file`: the log to write; `raw_path` returns the path of its raw file."""
        self._raw = raw_path(log_file)
        self._note_name = f"{self._raw.name}.offset"
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
        """Write the log until the unit has ended and its raw file is read to the end; may be cancelled at any time.

        `is_running`: returns True while the unit may still write to the raw file.
        """
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

    def _alone(self, work: Callable[[HeldDirectory], bool]) -> bool:
        """Call `work` with the open directory, one call at a time, and return its result.

        Return False without a call if the follower has ended or the directory does not exist yet. Runs on a thread. If
        the awaiting task is cancelled meanwhile, the files stay open until the thread is done, since descriptor numbers
        must not be reused while it writes.
        """
        try:
            with self._work:
                if self._is_over:
                    return False
                with hold_directory(self._raw.parent) as directory:
                    return work(directory)
        except FileNotFoundError:
            if self._fd >= 0:
                raise
            return False  # there is no directory yet
        finally:
            if self._is_over:
                self._close_unless_busy()

    def _close_unless_busy(self) -> None:
        if self._work.acquire(blocking=False):
            try:
                self._close()
            finally:
                self._work.release()

    def _step(self, directory: HeldDirectory) -> bool:
        """Copy one chunk of the raw file to the log, or change to the next raw file; False if nothing was to do."""
        if self._fd < 0 and not self._open(directory):
            return False
        younger = self._younger(directory)  # before reading: a file that was renamed grows no more
        data = os.pread(self._fd, _CHUNK, self._position)
        if not data:
            return younger is not None and self._follow(directory, younger)
        self._position += len(data)
        self._log.write(self._lines.feed(data, self._now_ns()))
        self._save(directory)
        if self._log.is_full:
            self._log.rotate(directory)
            self._save(directory)
        self._free_space()
        return True

    def _finish(self, directory: HeldDirectory) -> bool:
        if self._fd >= 0:
            self._log.write(self._lines.finish(self._now_ns()))
            self._save(directory)
        return False

    def _open(self, directory: HeldDirectory) -> bool:
        progress = self._load(directory)
        files = self._files(directory)
        name, offset = self._find(directory, progress.inode, files), progress.offset
        if name is None and progress.inode == 0 and offset:  # saved by an agent without support for rotation
            name = self._raw.name
        elif name is None and files:  # nothing was read yet
            name, offset = files[0][0], 0
        if name is None or not self._open_raw(directory, name, offset):
            return False
        self._log.open(directory, progress.log_size)
        return True

    def _open_raw(self, directory: HeldDirectory, name: str, offset: int) -> bool:
        try:
            fd = directory.open(name, os.O_RDWR)
        except FileNotFoundError:  # the runtime creates it with the first output
            return False
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = fd
        self._inode = os.fstat(fd).st_ino
        with suppress(OSError):  # it is held already, or the file system has no hard links
            directory.link(name, self._held(self._inode))
        self._position = offset
        self._freed = offset - offset % _FREE_STEP
        return True

    def _younger(self, directory: HeldDirectory) -> str | None:
        """Return the name of the raw file to read after the present one; None if the present one is the newest."""
        status = directory.stat(self._raw.name)  # None: in the middle of a rotation
        if status is not None and status.st_ino == self._inode:
            return None
        files = self._files(directory)
        at = next((index for index, (_, inode) in enumerate(files) if inode == self._inode), -1)
        return files[at + 1][0] if at + 1 < len(files) else None

    def _follow(self, directory: HeldDirectory, younger: str) -> bool:
        """Continue with the raw file `younger`; return False if it is gone.

        A line may begin in one file and end in the next.
        """
        if not self._open_raw(directory, younger, 0):
            return False
        self._save(directory)
        return True

    def _held(self, inode: int) -> str:
        return f"{self._raw.name}{_HELD}{inode}"

    def _find(self, directory: HeldDirectory, inode: int, files: list[tuple[str, int]]) -> str | None:
        """Return the present name of the raw file with this inode, or of the hard link to it; None if both are gone."""
        held = self._held(inode)
        is_held = bool(inode) and directory.stat(held) is not None
        return next((name for name, file in files if file == inode), held if is_held else None)

    def _let_go(self, directory: HeldDirectory) -> None:
        """Remove the hard links to all raw files but the present one."""
        for name in directory.files(f"{self._raw.name}{_HELD}"):
            if name != self._held(self._inode):
                directory.unlink(name)

    def _files(self, directory: HeldDirectory) -> list[tuple[str, int]]:
        """Return name and inode of the raw file and of rotated raw files, oldest first."""
        listed = _look_for(directory, self._raw.name)
        for _ in range(_ROTATION_LOOKS):
            if (again := _look_for(directory, self._raw.name)) == listed:
                break
            listed = again  # a rotation is under way
        return listed

    def _load(self, directory: HeldDirectory) -> CopyProgress:
        try:
            with os.fdopen(directory.open(self._note_name), "rb") as note:
                return msgspec.json.decode(note.read(_NOTE_BYTES), type=CopyProgress)
        except (FileNotFoundError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # nothing saved, or not readable: begin at the start of the raw file
            return CopyProgress()

    def _save(self, directory: HeldDirectory) -> None:
        offset = self._position - len(self._lines.pending)
        if offset < 0:
            return  # the line began in the previous file, to which the saved position still refers
        progress = CopyProgress(offset=offset, log_size=self._log.size, inode=self._inode)
        fresh = f"{self._note_name}.new"
        with os.fdopen(directory.replace(fresh, _LOG_MODE), "wb") as note:
            note.write(msgspec.json.encode(progress))
        # Without fsync: a power cut may cost or repeat lines, as the log itself is not synced either.
        directory.rename(fresh, self._note_name)
        if self._noted != self._inode:
            self._let_go(directory)
            self._noted = self._inode

    def _free_space(self) -> None:
        """Give disk space of raw bytes that were read back to the file system, in steps; failures are ignored."""
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


def _look_for(directory: HeldDirectory, raw: str) -> list[tuple[str, int]]:
    files: list[tuple[int, str, int]] = []
    for name in directory.files(raw):
        stem, _, number = name.rpartition(".")
        if name == raw or (stem == raw and number.isdecimal() and len(number) <= _NUMBER_DIGITS):
            there = directory.stat(name)
            if there is not None:
                files.append((-1 if name == raw else int(number), name, there.st_ino))
    return [(name, inode) for _, name, inode in sorted(files, reverse=True)]


async def keep_stream(
    stream: AsyncIterator[tuple[str, bytes]],
    log_file: Path,
    *,
    blocking: Blocking,
    clock: Clock,
    limits: RotationLimits | None = None,
) -> None:
    """Write the output of a container to `log_file` in CRI format until `stream` ends, and rotate the file.

    `stream`: yields pairs of ``stdout`` or ``stderr`` and raw bytes.
    """
    file = LogFile(log_file, clock, limits or RotationLimits())
    lines = {name: LineSplitter(name.encode()) for name in ("stdout", "stderr")}

    def open_file() -> None:
        make_private(log_file.parents[2], _DIRECTORY_MODE)
        with hold_directory(log_file.parent, make=_DIRECTORY_MODE) as directory:
            file.open(directory)

    def append(data: bytes) -> None:
        file.write(data)
        if file.is_full:
            with hold_directory(log_file.parent) as directory:
                file.rotate(directory)

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
    """Return the wall-clock time in nanoseconds since the epoch."""
    moment = clock.now()
    return int(moment.timestamp()) * 10**9 + moment.microsecond * 1000


def _punch_hole(fd: int, offset: int, length: int) -> None:
    with suppress(OSError):  # EOPNOTSUPP: the file system keeps the bytes, which costs only space
        call("fallocate", fd, _PUNCH_HOLE_KEEP_SIZE, offset, length)
