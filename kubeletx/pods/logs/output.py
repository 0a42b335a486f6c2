"""Select and format the lines of a container log by the options of a request (`LogSelection`). Pure.

Most logs have only whole lines (tag F). One regular expression splits a block of such lines; all other blocks are
processed line by line. For 200 MB with timestamps, line by line takes 8 s instead of 0.9 s.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

import msgspec

from .format import LogRecord, format_time, parse_line, parse_time

_TEXT: Final = re.compile(rb"(?m)^[-0-9T:.]{20,29}(?:Z|[+-]\d\d:\d\d) std(?:out|err) F (.*\n)")
"""Matches a whole line; the group is its text."""
_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?)(Z|[+-]\d\d:\d\d)")
_FIELDS: Final = re.compile(rb"(?m)^%b (stdout|stderr) F (.*\n)" % _TIME.pattern)
"""Matches time, zone, stream and text of a whole line."""
_FULL_TIME_BYTES: Final = len("2026-11-20T12:00:00.123456789")


class LogSelection(msgspec.Struct, frozen=True, kw_only=True):
    """Options of a request for a container's log, as in core/v1 PodLogOptions.

    `follow`: also return lines that are written later. `timestamps`: put the time before each line.
    """

    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    """Number of lines to return, from the end of the log; None for all."""
    since: datetime | None = None
    """Lines written before this time (with time zone) are left out; None for all lines."""
    limit_bytes: int | None = None
    """Largest number of bytes to return, which may cut the last line; None for no limit."""
    stream: str = "all"
    """all, stdout or stderr."""


class LogOutput:
    """Selects and formats the lines of one log by stream, time and byte limit; pass the lines in their order.

    `tail_lines` and `follow` are handled by `LogReader`.
    """

    def __init__(self, options: LogSelection) -> None:
        self._timestamps = options.timestamps
        self._stream = None if options.stream == "all" else options.stream.encode()
        self._since_ns = 0 if options.since is None else max(0, _to_ns(options.since))
        self._left = options.limit_bytes
        self._line_start: dict[bytes, bool] = {}

    @property
    def full(self) -> bool:
        return self._left is not None and self._left <= 0

    def format(self, data: bytes) -> bytes:
        """Return the output for these lines of the log file; empty if none of them is selected.

        `data`: whole lines; only the last one may lack its newline.
        """
        text = self._quickly(data)
        if text is None:
            text = b"".join([self._piece(line) for line in data.split(b"\n") if line])
        if self._left is not None:
            text = text[: max(0, self._left)]
            self._left -= len(text)
        return text

    def _quickly(self, data: bytes) -> bytes | None:
        """Format all lines with one regular expression; return None if not all are whole lines (tag F)."""
        if not data.endswith(b"\n"):
            return None
        if not self._timestamps and self._stream is None and not self._since_ns:
            texts = _TEXT.findall(data)
            return b"".join(texts) if len(texts) == data.count(b"\n") else None
        if not all(self._line_start.values()):
            return None
        lines = _FIELDS.findall(data)
        if len(lines) != data.count(b"\n"):
            return None
        if self._stream is not None:
            lines = [line for line in lines if line[2] == self._stream]
        if self._since_ns:
            since = {zone: _bound(self._since_ns, zone) for zone in {line[1] for line in lines}}
            lines = [line for line in lines if line[0] >= since[line[1]]]
        if not self._timestamps:
            return b"".join([text for _, _, _, text in lines])
        return b"".join([b"%b%b %b" % (_nine_digits(at), zone, text) for at, zone, _, text in lines])

    def _piece(self, line: bytes) -> bytes:
        record = parse_line(line)
        if record is None or (self._stream is not None and record.stream != self._stream):
            return b""
        if self._since_ns and record.at_ns < self._since_ns:
            return b""
        starts = self._line_start.get(record.stream, True)
        self._line_start[record.stream] = not record.partial
        prefix = _prefix(record) if self._timestamps and starts else b""
        return prefix + record.text + (b"" if record.partial else b"\n")


def _to_ns(moment: datetime) -> int:
    since_epoch = moment - datetime.fromtimestamp(0, UTC)
    return (since_epoch.days * 86_400 + since_epoch.seconds) * 10**9 + since_epoch.microseconds * 1000


def _bound(at_ns: int, zone: bytes) -> bytes:
    """Format `at_ns` as a time in `zone` without trailing zeros, so that it sorts before all later times."""
    ahead_ns = -parse_time(b"1970-01-01T00:00:00" + zone)
    return format_time(at_ns + ahead_ns).rstrip(b"Z").rstrip(b"0").rstrip(b".")


def _nine_digits(at: bytes) -> bytes:
    """Return the time (without zone) with nine digits of fraction; runtimes leave out trailing zeros."""
    if len(at) == _FULL_TIME_BYTES:
        return at
    whole, _, fraction = at.partition(b".")
    return b"%b.%b" % (whole, fraction.ljust(9, b"0"))


def _prefix(record: LogRecord) -> bytes:
    """Return the record's time as the kubelet shows it, in the record's own zone; leave an invalid time unchanged."""
    match = _TIME.fullmatch(record.time)
    return b"%b%b " % (_nine_digits(match[1]), match[2]) if match else record.time + b" "
