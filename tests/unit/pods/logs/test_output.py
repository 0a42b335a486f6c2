from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.pods.logs.output import LogOutput, LogSelection

HEAD = b"2026-01-02T03:04:05.123456789Z "
NOON = datetime(2026, 1, 2, 12, 0, 0, tzinfo=UTC)

OPTIONS = st.builds(
    LogSelection,
    timestamps=st.booleans(),
    since=st.none()
    | st.sampled_from([0, 500_000, 120_000, 123_456]).map(lambda us: NOON + timedelta(microseconds=us)),
    limit_bytes=st.none() | st.integers(0, 300),
    stream=st.sampled_from(["all", "stdout", "stderr"]),
)
TIMES = st.builds(
    lambda second, fraction, zone: b"2026-01-02T" + second + fraction + zone,
    st.sampled_from([b"11:59:59", b"12:00:00", b"13:00:00", b"10:30:00"]),
    st.sampled_from([b"", b".5", b".12", b".120", b".1", b".123456", b".123456789", b".000000001"]),
    st.sampled_from([b"Z", b"Z", b"+01:00", b"-01:30"]),
)
WHOLE = st.builds(
    b"%b %b F %b".__mod__,
    st.tuples(TIMES, st.sampled_from([b"stdout", b"stderr"]), st.sampled_from([b"text", b"", b"\r\xff"])),
)
PART = st.builds(b"%b %b P part".__mod__, st.tuples(TIMES, st.sampled_from([b"stdout", b"stderr"])))
ODD = st.sampled_from(
    [b"", b"nonsense", b"noon stdout F text", HEAD + b"stdout F:tag text", HEAD + b"stdout F"]
)


def one_by_one(lines: list[bytes], options: LogSelection) -> bytes:
    """What is shown if each line comes alone: none of them ends with a newline, so each is looked at."""
    output = LogOutput(options)
    return b"".join([output.format(line) for line in lines])


@pytest.mark.parametrize(
    "lines",
    [
        [b"stdout F one", b"stderr F two", b"stdout F "],
        [b"stdout P o", b"stdout F ne"],
        [b"stdout F " + HEAD + b"stdout F nested"],
        [b"stdout F:tag one", b"stdout F two"],
        [b"stdout F one", b"nonsense", b"stdout F two"],
        [b"stdout F", b"stdout F two"],
        [b"nonsense " + HEAD + b"stdout F one", b"stdout F two"],
        [b"stdout F carriage\rreturn\x0b\xff", b"stderr F \x00"],
    ],
)
@pytest.mark.parametrize(
    "options", [LogSelection(), LogSelection(timestamps=True), LogSelection(stream="stdout")]
)
def test_text_is_the_same_whether_or_not_each_line_is_looked_at(lines, options):
    lines = [HEAD + line for line in lines]
    assert LogOutput(options).format(b"\n".join(lines) + b"\n") == one_by_one(lines, options)


@given(st.lists(st.lists(WHOLE | PART | ODD) | st.lists(WHOLE)), OPTIONS)
def test_any_blocks_show_what_their_lines_show(blocks, options):
    output = LogOutput(options)
    shown = b"".join([output.format(b"".join([line + b"\n" for line in block])) for block in blocks])
    assert shown == one_by_one([line for block in blocks for line in block], options)


def test_the_rest_of_a_line_from_the_block_before_has_no_time_of_its_own():
    output = LogOutput(LogSelection(timestamps=True))
    first = output.format(HEAD + b"stdout F one\n" + HEAD + b"stdout P tw\n")
    assert first + output.format(HEAD + b"stdout F o\n" + HEAD + b"stdout F three\n") == (
        HEAD + b"one\n" + HEAD + b"two\n" + HEAD + b"three\n"
    )


@pytest.mark.parametrize("more", [b"", b"nonsense\n"])
def test_times_have_nine_digits_and_keep_their_zone(more):
    data = b"2026-01-02T03:04:05Z stdout F a\n2026-01-02T03:04:05.25+01:00 stdout F b\n"
    assert LogOutput(LogSelection(timestamps=True)).format(data + more) == (
        b"2026-01-02T03:04:05.000000000Z a\n2026-01-02T03:04:05.250000000+01:00 b\n"
    )


@pytest.mark.parametrize("more", [b"", b"nonsense\n"])
def test_a_line_is_left_out_by_its_own_time_even_if_the_clock_was_set_back(more):
    data = b"".join(
        b"2026-01-02T%b stdout F %b\n" % (at, at)
        for at in (b"12:00:00.5Z", b"11:00:00Z", b"12:00:00Z", b"13:00:00+01:00", b"12:59:59.9+01:00")
    )
    shown = LogOutput(LogSelection(since=NOON)).format(data + more)
    assert shown.split() == [b"12:00:00.5Z", b"12:00:00Z", b"13:00:00+01:00"]


def test_the_byte_limit_counts_times_too():
    output = LogOutput(LogSelection(timestamps=True, limit_bytes=len(HEAD) + 2))
    assert output.format(HEAD + b"stdout F one\n" + HEAD + b"stdout F two\n") == HEAD + b"on"
    assert output.full
