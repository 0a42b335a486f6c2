"""Paths of container logs, and format of their lines, as CRI runtimes write them. Pure.

    2026-11-20T12:00:00.123456789Z stdout F text of a whole line
    2026-11-20T12:00:00.123456789Z stderr P first part of a longer line

Tag F: the text ends with a newline. Tag P: the text is a part of a line that continues in the next record. Source: the
CRI log format that the kubelet reads.
"""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from kubeletx.api import LogMode

MAX_LINE_BYTES: Final = 16 * 1024
"""Longer lines are written in parts, as containerd does by default."""

_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)")
RAW_SUFFIX: Final = ".raw"


def log_path(container: str, attempt: int, log_mode: LogMode = LogMode.FILE) -> str:
    """Return the path of the log of one run of a container, relative to the sandbox's log directory.

    It is ``<container>/<attempt>.log``. In log mode raw-file, it is the path of the raw file,
    ``<container>/<attempt>.raw``, from which the agent writes the log (see `raw_files`). `attempt`: restart count.
    """
    suffix = RAW_SUFFIX if log_mode is LogMode.RAW_FILE else ".log"
    return f"{container}/{attempt}{suffix}"


def raw_path(log_file: Path) -> Path:
    """Return the path of the raw file from which the agent writes `log_file`: ``0.raw`` for ``0.log``."""
    return log_file.with_suffix(RAW_SUFFIX)


class LogRecord(NamedTuple):
    """One parsed line of a log file. `partial`: True for tag P. `text`: without the newline that tag F implies."""

    time: bytes
    stream: bytes
    partial: bool
    text: bytes

    @property
    def at_ns(self) -> int:
        """Nanoseconds since the epoch; 0 if the time cannot be read."""
        return parse_time(self.time)


def parse_line(line: bytes) -> LogRecord | None:
    """Parse one line with or without its newline; None if it is not a log record."""
    parts = line.rstrip(b"\n").split(b" ", 3)
    if len(parts) < 3 or parts[1] not in {b"stdout", b"stderr"}:
        return None
    # The tag may carry more after a colon; only its first part says P or F.
    tag = parts[2].split(b":", 1)[0]
    if tag not in {b"P", b"F"}:
        return None
    return LogRecord(parts[0], parts[1], tag == b"P", parts[3] if len(parts) == 4 else b"")


def format_record(at_ns: int, stream: bytes, text: bytes, *, partial: bool) -> bytes:
    """Format one line of a log file, newline included."""
    return b"%s %s %s %s\n" % (format_time(at_ns), stream, b"P" if partial else b"F", text)


def format_time(at_ns: int) -> bytes:
    """Format a time as RFC 3339 in UTC, with nine digits after the point."""
    seconds, nanos = divmod(at_ns, 10**9)
    return time.strftime(f"%Y-%m-%dT%H:%M:%S.{nanos:09d}Z", time.gmtime(seconds)).encode()


def parse_time(text: bytes) -> int:
    """Parse an RFC 3339 time to nanoseconds since the epoch; 0 if it is invalid."""
    match = _TIME.fullmatch(text)
    if match is None:
        return 0
    zone = b"+00:00" if match[4] == b"Z" else match[4]
    try:
        whole = datetime.fromisoformat((match[1] + b"T" + match[2] + zone).decode())
    except ValueError:
        return 0
    seconds = round((whole - datetime.fromtimestamp(0, UTC)).total_seconds())
    return seconds * 10**9 + int((match[3] or b"").ljust(9, b"0"))


class LineSplitter:
    """Converts the raw output of a container to log lines; keeps an unfinished line until the rest arrives."""

    def __init__(self, stream: bytes = b"stdout", *, pending: bytes = b"") -> None:
        """`stream`: stdout or stderr, written into each line. `pending`: the unfinished line of an earlier splitter."""
        self._stream = stream
        self.pending = pending

    def feed(self, data: bytes, at_ns: int) -> bytes:
        """Return the formatted log lines that `data` completes; a line above `MAX_LINE_BYTES` is written in parts.

        `at_ns`: time written into the lines, in nanoseconds since the epoch.
        """
        *whole, rest = (self.pending + data).split(b"\n")
        lines = [line for text in whole for line in self._parts(text, at_ns, last=True)]
        while len(rest) > MAX_LINE_BYTES:
            head, rest = rest[:MAX_LINE_BYTES], rest[MAX_LINE_BYTES:]
            lines.append(format_record(at_ns, self._stream, head, partial=True))
        self.pending = rest
        return b"".join(lines)

    def finish(self, at_ns: int) -> bytes:
        """Return the log line for the unfinished line at the end of the output; empty if there is none."""
        rest, self.pending = self.pending, b""
        return b"".join(self._parts(rest, at_ns, last=True)) if rest else b""

    def _parts(self, text: bytes, at_ns: int, *, last: bool) -> list[bytes]:
        starts = range(0, max(1, len(text)), MAX_LINE_BYTES)
        return [
            format_record(
                at_ns,
                self._stream,
                text[start : start + MAX_LINE_BYTES],
                partial=not (last and start == starts[-1]),
            )
            for start in starts
        ]
