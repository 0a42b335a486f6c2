"""Reading of container logs, for ``kubectl logs`` and ``kubeletx logs``.

Lines are read from the current log file, not from rotated ones; parts of a long line are joined again. A request that
follows the log continues after a rotation and ends when the container or machine has ended and everything was read. File
work runs on threads, one chunk at a time.

A pod with a hostPath may be able to write to the directory: only regular files are read, no link is followed, and a
line without end uses no more memory than `MAX_LINE_BYTES`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from kubeletx.api import Blocking, NotFound, Unavailable
from kubeletx.volumes.files.held import hold_directory

from .file_watch import FileWatcher
from .format import parse_line
from .output import LogOutput, LogSelection

T = TypeVar("T")

_CHUNK: Final = 256 * 1024
MAX_LINE_BYTES: Final = 1024 * 1024
"""Longer lines are returned in parts."""
_NO_RECORD: Final = b"-"
"""Replaces the first part of a long line that is not a log record, so that the rest is not parsed as one."""
_STATE_SECONDS: Final = 1.0
"""Interval of checks that the unit still runs, while a followed file does not change."""

_BLOCK: Final = 64 * 1024
_BLOCKS_PER_STEP: Final = 64
HEADER_BYTES: Final = 128
"""Upper bound for the bytes of time, stream and tag at the start of a line."""


class LogReader:
    """Reads log files; one object serves any number of readers."""

    def __init__(self, *, blocking: Blocking, watcher: FileWatcher | None = None) -> None:
        """`watcher`: a `FileWatcher` shared with others; None: make a new one."""
        self._blocking = blocking
        self._watcher = watcher or FileWatcher()

    async def require(self, path: Path) -> None:
        """Raise NotFound if there is no log at `path` that can be read, Unavailable if it cannot be opened."""
        await self._call(_require, path)

    async def read(
        self, path: Path, options: LogSelection, *, is_running: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[bytes]:
        """Yield the text of the log at `path`, selected and formatted by `options`, in pieces.

        `is_running`: returns True if the container or machine may still write to the log; called only if
        `options.follow` is set. Raises NotFound if there is no log and nothing runs that could write it, Unavailable if
        the log cannot be read.
        """
        shown = LogOutput(options)
        if shown.full:
            return
        directory = path.parent
        if not options.follow:
            async for piece in self._read_file(path, shown, options):
                yield piece
            return
        with self._watcher.watch(directory) as changed:
            follower = _Follower(path)
            try:
                while not shown.full:
                    changed.clear()
                    running = is_running()
                    text = await self._call(_show_more, follower, shown, options)
                    if text is not None:
                        if text:
                            yield text
                    elif not running and await self._call(follower.is_at_end):
                        if not follower.found:
                            raise _not_found(path)
                        if text := shown.format(follower.rest()):
                            yield text
                        return
                    else:
                        await self._watcher.wait(changed, _STATE_SECONDS)
            finally:
                follower.close()

    async def _read_file(self, path: Path, shown: LogOutput, options: LogSelection) -> AsyncIterator[bytes]:
        follower = _Follower(path)
        try:
            while not shown.full:
                text = await self._call(_show_more, follower, shown, options)
                if text is None:
                    break
                if text:
                    yield text
            if not follower.found:
                raise _not_found(path)
            if text := shown.format(follower.rest()):
                yield text
        finally:
            follower.close()

    async def _call(self, function: Callable[..., T], *args: Any) -> T:
        try:
            return await self._blocking(function, *args)
        except OSError as err:
            raise Unavailable(f"cannot read log: {err.strerror} ({err.filename})") from err


def _require(path: Path) -> None:
    follower = _Follower(path)
    try:
        if not follower.open(LogSelection()):
            raise _not_found(path)
    finally:
        follower.close()


def _show_more(follower: _Follower, shown: LogOutput, options: LogSelection) -> bytes | None:
    """Return the formatted lines since the last call, possibly empty; None if there are no new lines."""
    data = follower.read_more(options)
    return None if data is None else shown.format(data)


class _Follower:
    """Reads the file at one path, and after a rotation the new file at this path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._tail: TailSearch | None = None
        self._rest = b""
        self.found = False

    def read_more(self, options: LogSelection) -> bytes | None:
        """Return the lines that are new since the last call, possibly none (b""); None at the end of the file."""
        if self._file is None and not self.open(options):
            return None
        assert self._file is not None
        if self._tail is not None:
            return self._search_tail(self._file, self._tail)
        data = self._file.read(_CHUNK)
        if not data and self._was_replaced():
            data = self._file.read(_CHUNK)  # what was written before the writer closed the old file
        if not data and self._was_replaced():
            self.close()
            if self._rest:  # the writer left the old file in the middle of a line
                self._rest += b"\n"
            # The new file is read from its start; `tail_lines` applies to the first file only.
            return self.read_more(LogSelection()) if self.open(LogSelection()) else None
        if not data:
            return None
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end] + self._cut_long_line()

    def is_at_end(self) -> bool:
        """Return True if the file is read to its end and no new file has replaced it."""
        return self._file is None or not self._was_replaced()

    def rest(self) -> bytes:
        """Return and drop the unfinished line (without a newline) at the end of the file; empty if there is none."""
        rest, self._rest = self._rest, b""
        return rest

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _cut_long_line(self) -> bytes:
        """If the unfinished line exceeds the limit, return its present text as a part (tag P); otherwise b"".

        The rest of the line then begins with the same time and stream.
        """
        if len(self._rest) <= MAX_LINE_BYTES:
            return b""
        record = parse_line(self._rest)
        header_bytes = len(self._rest) - len(record.text) if record is not None else 0
        if record is None or header_bytes > HEADER_BYTES:
            self._rest = _NO_RECORD
            return b""
        self._rest = self._rest[:header_bytes]
        return b"%b %b P %b\n" % (record.time, record.stream, record.text)

    def _search_tail(self, file: BinaryIO, tail: TailSearch) -> bytes:
        offset = tail.step()
        if offset is not None:
            file.seek(offset)
            self._tail = None
        return b""

    def open(self, options: LogSelection) -> bool:
        """Open the file at the path; return False if there is none."""
        try:
            with hold_directory(self._path.parent) as directory:
                descriptor = directory.open(self._path.name)
        except FileNotFoundError:  # between rename and reopen of a rotation there is no file
            return False
        self._file = os.fdopen(descriptor, "rb", buffering=0)
        if options.tail_lines is not None and not self.found:
            self._tail = TailSearch(self._file, options.tail_lines)
        self.found = True
        return True

    def _was_replaced(self) -> bool:
        assert self._file is not None
        ours = os.fstat(self._file.fileno())
        try:
            with hold_directory(self._path.parent) as directory:
                there = directory.stat(self._path.name)
        except FileNotFoundError:  # between rename and reopen of a rotation there is no file
            return False
        if there is None:
            return False
        if not os.path.samestat(ours, there):
            return True
        if there.st_size < self._file.tell():  # cut short in place
            # copytruncate of log tools: the same file, with new content from its start.
            self._file.seek(0)
            self._rest = b""
        return False


def _not_found(path: Path) -> NotFound:
    return NotFound(f"there is no log at {path}")


class TailSearch:
    """Finds the offset in `file` from which the last `lines` lines follow; a line in several parts counts once.

    It reads from the end, in steps of bounded work. Only one block is in memory, even for very long lines: the first
    bytes of a record show if it is a part of a line.
    """

    def __init__(self, file: BinaryIO, lines: int) -> None:
        self._file, self._left = file, lines
        self._position = self._line_end = file.seek(0, os.SEEK_END)
        self._following = b""
        self._is_last_line = True

    def step(self) -> int | None:
        """Search a bounded number of blocks; return the offset, or None if it is not found yet: call `step` again.

        The offset is 0 if the file has fewer lines.
        """
        if self._left <= 0:
            return self._position
        for _ in range(_BLOCKS_PER_STEP):
            if self._position <= 0:
                return 0
            position = self._search_block()
            if position is not None:
                return position
        return None

    def _search_block(self) -> int | None:
        """Search the block before the present position; return the offset, or None if it is not in this block."""
        start = max(0, self._position - _BLOCK)
        self._file.seek(start)
        block = self._file.read(self._position - start)
        data = block + self._following
        at = len(block)
        while True:
            newline = block.rfind(b"\n", 0, at)
            if newline < 0 and start > 0:
                break
            offset = start + newline + 1
            if offset < self._line_end and self._begins_one_more(
                data[newline + 1 : newline + 1 + HEADER_BYTES]
            ):
                return self._line_end
            self._line_end = offset
            if newline < 0:
                break
            at = newline
        self._following = data[:HEADER_BYTES]
        self._position = start
        return None

    def _begins_one_more(self, header: bytes) -> bool:
        """Count the record with this header; return True if it comes before the lines that are searched for."""
        record = parse_line(header.partition(b"\n")[0])
        if (record is None or not record.partial) and not self._is_last_line:
            self._left -= 1
        self._is_last_line = False
        return self._left <= 0
