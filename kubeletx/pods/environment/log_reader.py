"""Reading container logs: what ``kubectl logs`` and ``kubeletx logs`` show.

Lines are taken from the file that the unit writes; parts of a long line are joined again. Following goes on
over rotation and ends when the unit has ended and everything was read. File work runs on the caller's
threads, one chunk at a time.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar

from kubeletx.api import Blocking, NotFound, Unavailable

from .file_watch import FileWatcher
from .log_output import LogOptions, LogOutput
from .log_tail import tail_offset

T = TypeVar("T")

_CHUNK: Final = 256 * 1024
_STATE_SECONDS: Final = 1.0
"""While following: how often to ask whether the unit still runs, if its file does not change."""


class LogReader:
    """Reads log files. One object serves any number of readers."""

    def __init__(self, *, blocking: Blocking, watcher: FileWatcher | None = None) -> None:
        """`watcher`: shared with others, or one of its own."""
        self._blocking = blocking
        self._watcher = watcher or FileWatcher()

    async def read(
        self, path: Path, options: LogOptions, *, is_running: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[bytes]:
        """Pieces of text, in order. `is_running`: whether the unit may still write; for following only.

        Raises NotFound when there is no log and the unit does not run, Unavailable when it cannot be read.
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

    async def _read_file(self, path: Path, shown: LogOutput, options: LogOptions) -> AsyncIterator[bytes]:
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


def _show_more(follower: _Follower, shown: LogOutput, options: LogOptions) -> bytes | None:
    """What is shown of the lines that came since the last call, perhaps nothing; None: there are none yet."""
    data = follower.read_more(options)
    return shown.format(data) if data else None


class _Follower:
    """Reads one path, and what takes its place when the log is rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: BinaryIO | None = None
        self._rest = b""
        self.found = False

    def read_more(self, options: LogOptions) -> bytes:
        """Whole lines that came since the last call; empty when there are none yet."""
        if self._file is None and not self._open(options):
            return b""
        assert self._file is not None
        data = self._file.read(_CHUNK)
        if not data and self._was_replaced():
            data = self._file.read(_CHUNK)  # what was written before the writer let go of the old file
        if not data and self._was_replaced():
            self.close()
            if self._rest:  # the writer left the old file in the middle of a line
                self._rest += b"\n"
            # The new file is read from its start, whatever the tail was.
            return self.read_more(LogOptions()) if self._open(LogOptions()) else b""
        data = self._rest + data
        end = data.rfind(b"\n") + 1
        self._rest = data[end:]
        return data[:end]

    def is_at_end(self) -> bool:
        """Whether nothing more is to be read; another file in its place means there is."""
        return self._file is None or not self._was_replaced()

    def rest(self) -> bytes:
        """A last line that has no newline (the writer died, or is in the middle of it)."""
        rest, self._rest = self._rest, b""
        return rest

    def close(self) -> None:
        """Free the descriptor."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self, options: LogOptions) -> bool:
        try:
            self._file = open(self._path, "rb", buffering=0)  # noqa: SIM115 - closed by close()
        except FileNotFoundError:
            return False
        if options.tail_lines is not None and not self.found:
            self._file.seek(tail_offset(self._file, options.tail_lines))
        self.found = True
        return True

    def _was_replaced(self) -> bool:
        assert self._file is not None
        ours = os.fstat(self._file.fileno())
        try:
            there = os.stat(self._path)
        except FileNotFoundError:
            return False
        if not os.path.samestat(ours, there):
            return True
        if there.st_size < self._file.tell():  # cut short in place
            self._file.seek(0)
            self._rest = b""
        return False


def _not_found(path: Path) -> NotFound:
    return NotFound(f"there is no log at {path}")


async def read_all(reader: LogReader, path: Path, options: LogOptions) -> bytes:
    """The whole text at once, for small logs."""
    return b"".join([piece async for piece in reader.read(path, options)])
