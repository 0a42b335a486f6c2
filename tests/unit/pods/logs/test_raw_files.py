from __future__ import annotations

import asyncio
import gzip
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeletx.pods.logs.file_watch import FileWatcher
from kubeletx.pods.logs.format import parse_line, raw_path
from kubeletx.pods.logs.raw_files import RawLogFollower, keep_stream
from kubeletx.pods.logs.rotation import RotationLimits
from kubeletx.testing.clock import FakeClock
from kubeletx_testing.waiting import until
from tests.unit.pods.environment_model import append, inline


def follower(
    log: Path, clock: FakeClock | None = None, limits: RotationLimits | None = None
) -> RawLogFollower:
    return RawLogFollower(
        log, blocking=inline, clock=clock or FakeClock(), watcher=FileWatcher(), limits=limits
    )


def shown(log: Path) -> str:
    """Text of the log and its rotated files, oldest first."""
    texts = []
    rotated = [one for one in sorted(log.parent.glob(f"{log.name}.*")) if one.suffix != ".tmp"]
    whole = [one for one in rotated if not one.with_name(f"{one.name}.gz").exists()]
    for path in [*whole, log]:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for line in data.split(b"\n")[:-1]:
            record = parse_line(line)
            assert record is not None
            texts.append(record.text.decode() + ("" if record.partial else "\n"))
    return "".join(texts)


async def test_raw_bytes_become_lines_with_times(tmp_path):
    log = tmp_path / "0.log"
    raw_path(log).write_bytes(b"one\ntwo\nrest")
    await follower(log).run(lambda: False)
    assert log.read_bytes().splitlines() == [
        b"2030-01-01T00:00:00.000000000Z stdout F one",
        b"2030-01-01T00:00:00.000000000Z stdout F two",
        b"2030-01-01T00:00:00.000000000Z stdout F rest",
    ]


async def test_new_bytes_are_followed_until_the_unit_ends(tmp_path):
    log, running = tmp_path / "0.log", [True]
    task = asyncio.create_task(follower(log).run(lambda: running[0]), name="raw-log")
    append(raw_path(log), b"one\n")
    async with asyncio.timeout(60):
        await until(lambda: log.exists() and shown(log) == "one\n")
    running[0] = False
    append(raw_path(log), b"two\n")
    await task
    assert shown(log) == "one\ntwo\n"


class Crash(Exception):
    """The agent dies here."""


def crash_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise at the n-th rename or write that the follower makes."""
    calls = iter(range(1, 10_000))
    write, rename = os.write, os.rename

    def count() -> None:
        if next(calls) == step:
            raise Crash

    def counted_write(fd: int, data: bytes) -> int:
        count()
        return write(fd, data)

    def counted_rename(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        count()
        rename(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "write", counted_write)
    monkeypatch.setattr(os, "rename", counted_rename)


@pytest.mark.parametrize("step", range(1, 16))
async def test_no_line_is_lost_or_doubled_whenever_the_agent_dies(tmp_path, step):
    log, clock = tmp_path / "0.log", FakeClock()
    limits = RotationLimits(max_size_bytes=150, max_files=20)
    expected = ""
    with pytest.MonkeyPatch.context() as patch:
        crash_at(step, patch)
        try:
            for number in range(12):
                clock.advance(2)
                line = f"line {number} {'x' * 30}\n"
                expected += line
                append(raw_path(log), line.encode())
                await follower(log, clock, limits).run(lambda: False)
        except Crash:
            pass
    clock.advance(2)
    await follower(log, clock, limits).run(lambda: False)
    assert shown(log) == expected


@settings(max_examples=25, deadline=None)
@given(st.lists(st.binary(max_size=40).map(lambda data: data.replace(b"\r", b"")), max_size=8))
def test_any_raw_file_is_reported_whole_over_any_number_of_restarts(tmp_path_factory, pieces):
    log = tmp_path_factory.mktemp("log") / "0.log"

    async def run() -> None:
        for piece in pieces:
            append(raw_path(log), piece)
            one = follower(log)
            task = asyncio.create_task(one.run(lambda: True), name="raw-log")
            for _ in range(5):
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        await follower(log).run(lambda: False)

    asyncio.run(run())
    raw = b"".join(pieces)
    found = b""
    if log.exists():
        for line in log.read_bytes().split(b"\n")[:-1]:
            record = parse_line(line)
            assert record is not None
            found += record.text + b"\n"
    assert found == raw + (b"" if not raw or raw.endswith(b"\n") else b"\n")


def rotate_raw(log: Path, *, keep: int = 3) -> None:
    """As virtlogd does: 0.raw becomes 0.raw.0, that 0.raw.1, and what is too old goes."""
    raw = raw_path(log)
    for number in range(keep - 1, 0, -1):
        older = raw.with_name(f"{raw.name}.{number - 1}")
        if older.exists():
            older.rename(raw.with_name(f"{raw.name}.{number}"))
    raw.rename(raw.with_name(f"{raw.name}.0"))


async def test_a_raw_file_that_someone_else_rotates_is_followed_over_all_its_names(tmp_path):
    log = tmp_path / "0.log"
    append(raw_path(log), b"one\ntw")
    task = asyncio.create_task(follower(log).run(lambda: True), name="raw-log")
    expected = "one\n"
    for number in range(4):
        async with asyncio.timeout(60):
            await until(lambda expected=expected: log.exists() and shown(log) == expected)
        append(raw_path(log), b"?" * number)
        rotate_raw(log)
        append(raw_path(log), b"!\ntw")
        expected += f"tw{'?' * number}!\n"
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await follower(log).run(lambda: False)
    assert shown(log) == f"{expected}tw\n"


@pytest.mark.parametrize("rest", [b"", b"be"])
async def test_rotations_while_the_agent_was_away_lose_only_what_was_removed(tmp_path, rest):
    log = tmp_path / "0.log"
    append(raw_path(log), b"one\ntwo\n" + rest)
    task = asyncio.create_task(follower(log).run(lambda: True), name="raw-log")
    async with asyncio.timeout(60):
        await until(lambda: log.exists() and shown(log) == "one\ntwo\n")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    append(raw_path(log), b"gun\nthree\n")
    rotate_raw(log)
    append(raw_path(log), b"four\n")
    rotate_raw(log)
    append(raw_path(log), b"five\n")
    await follower(log).run(lambda: False)
    expected = f"one\ntwo\n{rest.decode()}gun\nthree\nfour\nfive\n"
    assert shown(log) == expected
    for word in (b"six\n", b"seven\n", b"eight\n", b"nine\n"):
        rotate_raw(log)
        append(raw_path(log), word)
    await follower(log).run(lambda: False)
    assert shown(log) == expected + "six\nseven\neight\nnine\n"


async def test_all_names_of_a_raw_file_that_was_never_read_are_reported_oldest_first(tmp_path):
    log = tmp_path / "0.log"
    for word in (b"one\n", b"two\n", b"three\n"):
        append(raw_path(log), word)
        rotate_raw(log)
    await follower(log).run(lambda: False)
    assert shown(log) == "one\ntwo\nthree\n"


async def test_a_note_without_a_file_number_is_about_the_raw_file(tmp_path):
    log = tmp_path / "0.log"
    raw_path(log).write_bytes(b"one\ntwo\n")
    log.write_bytes(b"2030-01-01T00:00:00.000000000Z stdout F one\n")
    (tmp_path / "0.raw.offset").write_text(f'{{"offset":4,"log_size":{log.stat().st_size}}}')
    await follower(log).run(lambda: False)
    assert shown(log) == "one\ntwo\n"


async def test_a_large_log_is_rotated(tmp_path):
    log, clock = tmp_path / "0.log", FakeClock()
    limits = RotationLimits(max_size_bytes=100, max_files=3)
    for number in range(6):
        clock.advance(10)
        append(raw_path(log), b"%d" % number * 100 + b"\n")
        await follower(log, clock, limits).run(lambda: False)
    assert sorted(one.name for one in tmp_path.glob("0.log*")) == [
        "0.log",
        "0.log.20300101-000050.gz",
        "0.log.20300101-000100",
    ]


async def test_space_of_the_raw_file_is_given_back(tmp_path):
    log = tmp_path / "0.log"
    raw_path(log).write_bytes((b"x" * 1023 + b"\n") * 4096)
    before = raw_path(log).stat()
    await follower(log).run(lambda: False)
    after = raw_path(log).stat()
    assert after.st_size == before.st_size
    assert after.st_blocks < before.st_blocks / 2


async def test_a_damaged_note_begins_again(tmp_path):
    log = tmp_path / "0.log"
    raw_path(log).write_bytes(b"one\n")
    (tmp_path / "0.raw.offset").write_text("{")
    await follower(log).run(lambda: False)
    assert shown(log) == "one\n"


async def test_a_stream_is_kept_with_both_its_sides(tmp_path):
    async def stream() -> AsyncIterator[tuple[str, bytes]]:
        yield "stdout", b"on"
        yield "stderr", b"bad\n"
        yield "stdout", b"e\nrest"

    log = tmp_path / "c" / "0.log"
    await keep_stream(stream(), log, blocking=inline, clock=FakeClock())
    assert [line.split(b" ", 1)[1] for line in log.read_bytes().splitlines()] == [
        b"stderr F bad",
        b"stdout F one",
        b"stdout F rest",
    ]


async def test_a_step_that_was_left_behind_keeps_its_files_until_it_is_done(tmp_path, monkeypatch):
    log = tmp_path / "0.log"
    raw_path(log).write_bytes(b"one\n")
    reading, goes_on = threading.Event(), threading.Event()
    numbers: list[int] = []
    read = os.pread

    def slow(number: int, size: int, at: int) -> bytes:
        numbers.append(number)
        reading.set()
        goes_on.wait(60)
        return read(number, size, at)

    monkeypatch.setattr(os, "pread", slow)
    one = RawLogFollower(log, blocking=asyncio.to_thread, clock=FakeClock(), watcher=FileWatcher())
    task = asyncio.create_task(one.run(lambda: True), name="raw-log")
    await asyncio.to_thread(reading.wait, 60)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert os.path.samestat(os.fstat(numbers[0]), raw_path(log).stat())
    goes_on.set()
    async with asyncio.timeout(60):
        await until(lambda: not is_open(numbers[0], raw_path(log)))
    assert shown(log) == "one\n"
    assert len(numbers) == 1


def is_open(number: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(number), path.stat())
    except OSError:
        return False
