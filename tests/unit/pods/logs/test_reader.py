from __future__ import annotations

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kubeletx.api import NotFound
from kubeletx.pods.logs.file_watch import FileWatcher
from kubeletx.pods.logs.format import format_record
from kubeletx.pods.logs.output import LogOutput, LogSelection
from kubeletx.pods.logs.reader import LogReader, _Follower
from kubeletx_testing.waiting import let_others_work, until
from tests.unit.pods.environment_model import append, inline
from tests.unit.pods.logs.reading import read_all

START = 1_800_000_000 * 10**9


def lines(*texts: str, stream: bytes = b"stdout", first: int = 0) -> bytes:
    return b"".join(
        format_record(START + (first + index) * 10**9, stream, text.encode(), partial=False)
        for index, text in enumerate(texts)
    )


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "0.log"
    path.write_bytes(
        lines("one", "two")
        + format_record(START + 2 * 10**9, b"stderr", b"thr", partial=True)
        + format_record(START + 3 * 10**9, b"stderr", b"ee", partial=False)
        + lines("four", first=4)
    )
    return path


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (LogSelection(), b"one\ntwo\nthree\nfour\n"),
        (LogSelection(tail_lines=2), b"three\nfour\n"),
        (LogSelection(tail_lines=0), b""),
        (LogSelection(tail_lines=99), b"one\ntwo\nthree\nfour\n"),
        (LogSelection(limit_bytes=6), b"one\ntw"),
        (LogSelection(limit_bytes=0), b""),
        (LogSelection(stream="stderr"), b"three\n"),
        (LogSelection(stream="stdout", tail_lines=2), b"four\n"),
        (LogSelection(since=datetime.fromtimestamp(1_800_000_001, UTC)), b"two\nthree\nfour\n"),
        (
            LogSelection(timestamps=True, tail_lines=2),
            b"2027-01-15T08:00:02.000000000Z three\n2027-01-15T08:00:04.000000000Z four\n",
        ),
    ],
)
async def test_options_choose_what_is_shown(log, options, expected):
    assert await read_all(LogReader(blocking=inline), log, options) == expected


async def test_a_missing_log_is_not_found(tmp_path):
    with pytest.raises(NotFound, match=r"0\.log"):
        await read_all(LogReader(blocking=inline), tmp_path / "0.log", LogSelection())


async def test_a_line_without_its_end_is_shown_as_it_is(tmp_path):
    path = tmp_path / "0.log"
    path.write_bytes(lines("one")[:-2])
    assert await read_all(LogReader(blocking=inline), path, LogSelection()) == b"on\n"


async def test_a_large_log_comes_in_pieces(tmp_path):
    path = tmp_path / "0.log"
    texts = [f"{number:0100d}" for number in range(10_000)]
    path.write_bytes(lines(*texts))
    pieces = [piece async for piece in LogReader(blocking=inline).read(path, LogSelection())]
    assert len(pieces) > 3
    assert b"".join(pieces).decode().split() == texts


@pytest.mark.parametrize(
    "options",
    [
        LogSelection(timestamps=True),
        LogSelection(timestamps=True, tail_lines=5_988, limit_bytes=700_000),
        LogSelection(since=datetime.fromtimestamp(1_800_004_000, UTC), stream="stderr"),
        LogSelection(timestamps=True, since=datetime.fromtimestamp(1_800_004_000, UTC)),
    ],
)
async def test_lines_torn_by_the_end_of_a_piece_are_shown_as_their_neighbours_are(tmp_path, options):
    path = tmp_path / "0.log"
    records = [
        format_record(START + number * 10**9, stream, b"%0100d" % number, partial=number % 500 == 250)
        for number in range(10_000)
        for stream in (b"stdout", b"stderr")
    ]
    path.write_bytes(b"".join(records))
    last = 6_000 if options.tail_lines is not None else len(records)  # of a thousand, two end no line
    alone = LogOutput(options)
    expected = b"".join([alone.format(record.rstrip(b"\n")) for record in records[-last:]])
    assert await read_all(LogReader(blocking=inline), path, options) == expected


class Tail:
    """A follower in a task, and what it has shown."""

    def __init__(self, path: Path, options: LogSelection) -> None:
        self.shown = b""
        self.running = True
        self.watcher = FileWatcher()
        reader = LogReader(blocking=inline, watcher=self.watcher)
        self.task = asyncio.create_task(self._run(reader, path, options), name="tail")

    async def _run(self, reader: LogReader, path: Path, options: LogSelection) -> None:
        async for piece in reader.read(path, options, is_running=lambda: self.running):
            self.shown += piece

    async def until(self, expected: bytes) -> None:
        async with asyncio.timeout(60):
            await until(lambda: self.shown == expected)

    async def end(self) -> bytes:
        self.running = False
        await self.task
        return self.shown


async def test_following_shows_new_lines_at_once_and_ends_with_the_unit(log):
    tail = Tail(log, LogSelection(follow=True, tail_lines=1))
    await tail.until(b"four\n")
    append(log, lines("five"))
    await tail.until(b"four\nfive\n")
    append(log, lines("six")[:-3])
    await let_others_work()
    append(log, lines("six")[-3:])
    await tail.until(b"four\nfive\nsix\n")
    assert await tail.end() == b"four\nfive\nsix\n"


async def test_following_goes_on_over_a_rotation(log):
    tail = Tail(log, LogSelection(follow=True, tail_lines=1))
    await tail.until(b"four\n")
    rotated = log.rename(log.with_name("0.log.20260101-000000"))
    append(rotated, lines("late"))
    log.write_bytes(lines("five"))
    await tail.until(b"four\nlate\nfive\n")
    await tail.end()


def test_what_comes_between_the_last_look_and_the_rotation_is_shown(log, monkeypatch):
    follower = _Follower(log)
    assert (follower.read_more(LogSelection()) or b"").count(b"\n") == 5
    was_replaced = follower._was_replaced

    def rotate_just_now() -> bool:
        if not log.with_suffix(".1").exists():
            append(log, lines("late"))
            log.rename(log.with_suffix(".1"))
            append(log, lines("fresh"))
        return was_replaced()

    monkeypatch.setattr(follower, "_was_replaced", rotate_just_now)
    shown = b"".join(follower.read_more(LogSelection()) or b"" for _ in range(3))
    follower.close()
    assert [line.rpartition(b" ")[2] for line in shown.splitlines()] == [b"late", b"fresh"]


async def test_a_line_that_was_cut_off_by_a_rotation_is_not_joined_to_the_next(log):
    tail = Tail(log, LogSelection(follow=True, tail_lines=1))
    await tail.until(b"four\n")
    rotated = log.rename(log.with_name("0.log.20260101-000000"))
    append(rotated, lines("late")[:-1])
    log.write_bytes(lines("five"))
    await tail.until(b"four\nlate\nfive\n")
    append(log, lines("end")[:-1])
    assert await tail.end() == b"four\nlate\nfive\nend\n"


async def test_times_are_shown_over_a_rotation_too(log):
    tail = Tail(
        log, LogSelection(follow=True, timestamps=True, since=datetime.fromtimestamp(1_800_000_004, UTC))
    )
    await tail.until(b"2027-01-15T08:00:04.000000000Z four\n")
    rotated = log.rename(log.with_name("0.log.20260101-000000"))
    append(rotated, lines("late", first=5)[:-1])
    log.write_bytes(lines("early", "five", first=3)[:-1])
    await tail.until(b"2027-01-15T08:00:04.000000000Z four\n2027-01-15T08:00:05.000000000Z late\n")
    append(log, b"\n")
    await tail.until(
        b"2027-01-15T08:00:04.000000000Z four\n2027-01-15T08:00:05.000000000Z late\n"
        b"2027-01-15T08:00:04.000000000Z five\n"
    )
    await tail.end()


async def test_following_waits_for_a_log_that_is_not_there_yet(tmp_path):
    path = tmp_path / "0.log"
    tail = Tail(path, LogSelection(follow=True))
    await let_others_work()
    path.write_bytes(lines("one"))
    await tail.until(b"one\n")
    await tail.end()


async def test_following_a_log_that_never_came_says_so(tmp_path):
    tail = Tail(tmp_path / "0.log", LogSelection(follow=True))
    tail.running = False
    with pytest.raises(NotFound):
        await tail.task


async def test_following_stops_at_the_byte_limit(log):
    tail = Tail(log, LogSelection(follow=True, limit_bytes=5))
    await tail.task
    assert tail.shown == b"one\nt"


async def test_a_cancelled_follower_frees_its_descriptors(log):
    before = len(os.listdir("/proc/self/fd"))
    tail = Tail(log, LogSelection(follow=True))
    await tail.until(b"one\ntwo\nthree\nfour\n")
    tail.task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await tail.task
    await asyncio.sleep(0)
    assert len(os.listdir("/proc/self/fd")) == before
