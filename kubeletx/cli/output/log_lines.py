"""Merges several logs into one stream, and adds a prefix to lines that says which log they come from."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Sequence

Log = Callable[[], Iterator[bytes]]


def with_prefix(prefix: str, pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the lines of a log, each with `prefix` before it. An incomplete last line gets no line feed."""
    for line in whole_lines(pieces):
        yield prefix.encode() + line


def whole_lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the bytes of `pieces` as lines: split after each line feed. The last line may be incomplete."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line + b"\n"
    if rest:
        yield rest


def merge(logs: Sequence[Log], *, at_once: bool) -> Iterator[bytes]:
    """Yield the content of all logs, one log after the other.

    `at_once`: if there are several, read all logs at the same time, in a daemon thread each, and yield lines as they
    arrive. Raises the first error of any log.
    """
    if not at_once or len(logs) == 1:
        for log in logs:
            yield from log()
        return
    lines: queue.SimpleQueue[bytes | Exception | None] = queue.SimpleQueue()

    def read(log: Log) -> None:
        try:
            for line in whole_lines(log()):
                lines.put(line)
            lines.put(None)
        except Exception as err:  # noqa: BLE001 - raised where the lines are read
            lines.put(err)

    for log in logs:
        threading.Thread(target=read, args=(log,), name="log", daemon=True).start()
    left = len(logs)
    while left:
        line = lines.get()
        if isinstance(line, Exception):
            raise line
        if line is None:
            left -= 1
        else:
            yield line
