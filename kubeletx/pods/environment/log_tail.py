"""Where the last lines of a log begin, found from its end. Blocking."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final

from .log_format import parse_line

_BLOCK: Final = 64 * 1024


def tail_offset(file: BinaryIO, lines: int) -> int:
    """Offset from which `lines` whole lines follow; parts of one line count once.

    0 when the file has fewer. Reads only as much of the end as is needed.
    """
    end = file.seek(0, os.SEEK_END)
    if lines <= 0:
        return end
    found, first = 1, True
    for start, line in _backwards(file, end):
        record = parse_line(line)
        ends_a_line = record is None or not record.partial
        if ends_a_line and not first:
            found += 1
            if found > lines:
                return start + len(line)
        first = False
    return 0


def _backwards(file: BinaryIO, end: int) -> Iterator[tuple[int, bytes]]:
    """Every line with its offset, last one first, each with its newline if it has one."""
    rest, position = b"", end
    while position > 0:
        size = min(_BLOCK, position)
        position -= size
        file.seek(position)
        rest = file.read(size) + rest
        # Until the start of the file is reached, the first line here may lack its beginning.
        cut = rest.find(b"\n") + 1 if position > 0 else 0
        if position > 0 and cut == 0:
            continue
        offset = position + len(rest)
        for line in reversed(_lines(rest[cut:])):
            offset -= len(line)
            yield offset, line
        rest = rest[:cut]


def _lines(data: bytes) -> list[bytes]:
    *whole, last = data.split(b"\n")
    lines = [line + b"\n" for line in whole]
    return [*lines, last] if last else lines
