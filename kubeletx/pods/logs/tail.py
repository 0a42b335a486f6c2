"""`TailSearch`: finds where the last N lines of a log begin, reading from the end. Blocking, in steps of bounded work.

Only one block is in memory, even for very long lines: the first bytes of a record show if it is a part of a line.
"""

from __future__ import annotations

import os
from typing import BinaryIO, Final

from .format import parse_line

_BLOCK: Final = 64 * 1024
_BLOCKS_PER_STEP: Final = 64
HEADER_BYTES: Final = 128
"""Upper bound for the bytes of time, stream and tag at the start of a line."""


class TailSearch:
    """Finds the offset in `file` from which the last `lines` lines follow; a line in several parts counts once."""

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
            found = self._search_block()
            if found is not None:
                return found
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
