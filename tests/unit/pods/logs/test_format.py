from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.pods.logs.format import (
    MAX_LINE_BYTES,
    LineSplitter,
    format_record,
    format_time,
    parse_line,
    parse_time,
)
from kubeletx.pods.logs.reader import TailSearch

NS = 1_800_000_000_123_456_789


def tail_offset(file: io.BytesIO, lines: int) -> int:
    search = TailSearch(file, lines)
    while (offset := search.step()) is None:
        pass
    return offset


@given(st.integers(0, 4_000_000_000 * 10**9))
def test_times_survive_a_round_trip(at_ns):
    assert parse_time(format_time(at_ns)) == at_ns


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"1970-01-01T00:00:01Z", 10**9),
        (b"1970-01-01T01:00:01.5+01:00", 1_500_000_000),
        (b"nonsense", 0),
        (b"1970-13-01T00:00:01Z", 0),
    ],
)
def test_times_of_any_zone_are_read(text, expected):
    assert parse_time(text) == expected


@given(st.binary(max_size=50).filter(lambda text: b"\n" not in text), st.booleans())
def test_a_record_survives_a_round_trip(text, partial):
    record = parse_line(format_record(NS, b"stderr", text, partial=partial))
    assert record is not None
    assert (record.at_ns, record.stream, record.partial, record.text) == (NS, b"stderr", partial, text)


@pytest.mark.parametrize("line", [b"", b"text", b"t stdin F x", b"t stdout X x", b"t stdout"])
def test_what_is_not_a_record_is_known(line):
    assert parse_line(line) is None


def test_further_tags_are_ignored():
    record = parse_line(b"2026-01-01T00:00:00Z stdout F:more text with  blanks")
    assert record is not None
    assert record.text == b"text with  blanks"


def joined(log: bytes) -> bytes:
    """What the stream was, as far as its log shows it."""
    text = b""
    for line in log.split(b"\n")[:-1]:
        record = parse_line(line)
        assert record is not None
        text += record.text + (b"" if record.partial else b"\n")
    return text


@given(st.lists(st.binary(max_size=30)), st.integers(0, 3))
def test_any_stream_can_be_told_from_its_log(pieces, longs):
    pieces = [*pieces, b"x" * (MAX_LINE_BYTES * longs // 2)]
    splitter = LineSplitter()
    log = b"".join(splitter.feed(piece, NS) for piece in pieces) + splitter.finish(NS)
    stream = b"".join(pieces)
    assert all(len(line) < MAX_LINE_BYTES + 100 for line in log.split(b"\n"))
    assert joined(log) == stream + (b"" if stream.endswith(b"\n") or not stream else b"\n")


def test_an_over_long_line_comes_in_parts_before_its_end_is_there():
    splitter = LineSplitter()
    log = splitter.feed(b"a" * (MAX_LINE_BYTES + 1), NS)
    assert log.count(b" P ") == 1
    assert splitter.pending == b"a"


RECORDS = st.lists(st.tuples(st.booleans(), st.sampled_from([0, 1, 5, 70_000])), max_size=8)


@given(RECORDS, st.integers(0, 6))
def test_the_tail_begins_at_a_whole_line(records, lines):
    log = b"".join(
        format_record(NS, b"stdout", b"x" * max(size, partial), partial=partial) for partial, size in records
    )
    offset = tail_offset(io.BytesIO(log), lines)
    whole = joined(log)
    expected = whole.splitlines(keepends=True)[-lines:] if lines else []
    assert joined(log[offset:]) == b"".join(expected)


def test_a_last_line_without_newline_counts():
    log = format_record(NS, b"stdout", b"one", partial=False) + b"2026-01-01T00:00:00Z stdout F two"
    assert log[tail_offset(io.BytesIO(log), 1) :] == b"2026-01-01T00:00:00Z stdout F two"
