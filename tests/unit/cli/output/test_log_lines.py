"""Several logs as one stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import NotFound
from kubeletx.cli.output.log_lines import merge, whole_lines, with_prefix


@given(st.lists(st.binary(max_size=8)))
def test_lines_are_the_same_bytes_cut_behind_each_line_feed(pieces: list[bytes]) -> None:
    lines = list(whole_lines(iter(pieces)))
    assert b"".join(lines) == b"".join(pieces)
    assert all(line.count(b"\n") == 1 and line.endswith(b"\n") for line in lines[:-1])


def test_each_line_reports_where_it_comes_from() -> None:
    assert list(with_prefix("[pod/web/a] ", iter([b"one\ntw", b"o\nend"]))) == [
        b"[pod/web/a] one\n",
        b"[pod/web/a] two\n",
        b"[pod/web/a] end",
    ]


def test_logs_come_one_after_the_other_unless_they_are_followed() -> None:
    assert list(merge([lambda: iter([b"a1\n", b"a2\n"]), lambda: iter([b"b\n"])], at_once=False)) == [
        b"a1\n",
        b"a2\n",
        b"b\n",
    ]


def test_followed_logs_come_line_by_line_from_all() -> None:
    second = threading.Event()

    def slow() -> Iterator[bytes]:
        yield b"slow be"
        assert second.wait(60)
        yield b"gins\n"

    def quick() -> Iterator[bytes]:
        yield b"quick\n"
        second.set()

    assert sorted(merge([slow, quick], at_once=True)) == [b"quick\n", b"slow begins\n"]


def test_an_error_of_one_followed_log_is_raised() -> None:
    def broken() -> Iterator[bytes]:
        yield b"a line\n"
        raise NotFound("no such container")

    with pytest.raises(NotFound, match="no such container"):
        list(merge([broken, lambda: iter([])], at_once=True))
