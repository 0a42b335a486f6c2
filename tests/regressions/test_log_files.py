"""A pod that can write the log directory through a hostPath leads the agent nowhere and stops nothing."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest

from kubeletx.api import Unavailable
from kubeletx.kube.types.core import Pod
from kubeletx.pods.logs.directories import PodDirectories
from kubeletx.pods.logs.file_watch import FileWatcher
from kubeletx.pods.logs.format import format_record, raw_path
from kubeletx.pods.logs.output import LogSelection
from kubeletx.pods.logs.raw_files import RawLogFollower
from kubeletx.pods.logs.reader import LogReader
from kubeletx.pods.logs.rotation import LogRotator, OpenLog, RotationLimits
from kubeletx.pods.logs.termination_messages import read_message
from kubeletx.pods.model.node_context import NodeContext
from kubeletx.testing.clock import FakeClock
from kubeletx.volumes.disk_usage import measure
from kubeletx.volumes.files.ownership import set_group
from kubeletx.volumes.files.safe_paths import remove_tree
from tests.unit.pods.logs.reading import read_all

T = TypeVar("T")
LIMITS = RotationLimits(max_size_bytes=100, max_files=4)
SECRET = b"the node's secret\n"
OLDER = "0.log.20260101-000000"


async def inline(function: Callable[..., T], /, *args: Any) -> T:
    return function(*args)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside"
    path.write_bytes(SECRET)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    directory = tmp_path / "pods" / "shop_web_u1" / "c"
    directory.mkdir(parents=True)
    path = directory / "0.log"
    path.write_bytes(b"x" * 101)
    return path


async def rotate(log: Path) -> int:
    """Rotate once; how often the runtime was asked to reopen its log."""
    reopened = []

    async def reopen() -> None:
        reopened.append(1)

    await LogRotator(blocking=inline, clock=FakeClock(), limits=LIMITS).rotate_all(
        [OpenLog(path=log, reopen=reopen)]
    )
    return len(reopened)


@contextmanager
def little_memory(limit_bytes: int) -> Iterator[None]:
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < limit_bytes
    finally:
        tracemalloc.stop()


async def test_a_link_among_the_rotated_logs_packs_no_file_of_the_node(log, outside):
    (log.parent / OLDER).symlink_to(outside)
    assert await rotate(log) == 1
    assert not list(log.parent.glob("*.gz"))
    assert outside.read_bytes() == SECRET


async def test_a_link_in_place_of_an_unfinished_archive_overwrites_no_file_of_the_node(log, outside):
    (log.parent / OLDER).write_bytes(b"older")
    (log.parent / f"{OLDER}.gz.tmp").symlink_to(outside)
    assert await rotate(log) == 1
    assert outside.read_bytes() == SECRET
    assert gzip.decompress((log.parent / f"{OLDER}.gz").read_bytes()) == b"older"


async def test_a_fifo_among_the_rotated_logs_does_not_stop_rotation(log):
    os.mkfifo(log.parent / OLDER)
    assert await rotate(log) == 1


async def test_an_archive_that_cannot_be_written_does_not_stop_rotation(log):
    (log.parent / OLDER).write_bytes(b"older")
    (log.parent / f"{OLDER}.gz.tmp").mkdir()
    assert await rotate(log) == 1


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
async def test_a_log_that_is_not_a_regular_file_is_not_rotated_and_reading_it_fails(log, outside, kind):
    log.unlink()
    make_instead(log, outside, kind)
    assert await rotate(log) == 0
    reader = LogReader(blocking=inline)
    for follow in (False, True):
        with pytest.raises(Unavailable, match="not a regular file"):
            await read_all(reader, log, LogSelection(follow=follow))


def make_instead(path: Path, outside: Path, kind: str) -> None:
    if kind == "link":
        path.symlink_to(outside)
    elif kind == "fifo":
        os.mkfifo(path)
    else:
        path.mkdir()


async def test_a_link_in_place_of_the_container_directory_is_not_followed(log, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    log.parent.rename(elsewhere)
    log.parent.symlink_to(elsewhere)
    assert await rotate(log) == 0
    with pytest.raises(Unavailable):
        await read_all(LogReader(blocking=inline), log, LogSelection())
    assert sorted(one.name for one in elsewhere.iterdir()) == ["0.log"]


def raw_follower(log: Path) -> RawLogFollower:
    return RawLogFollower(log, blocking=inline, clock=FakeClock(), watcher=FileWatcher(), limits=LIMITS)


async def test_links_beside_a_raw_log_overwrite_no_file_of_the_node(log, outside):
    log.unlink()
    raw_path(log).write_bytes(b"one\ntwo\n")
    (log.parent / "0.raw.offset.new").symlink_to(outside)
    await raw_follower(log).run(lambda: False)
    assert outside.read_bytes() == SECRET
    assert log.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("name", ["0.raw", "0.raw.offset", "0.log"])
async def test_a_fifo_in_place_of_a_file_of_a_raw_log_fails_at_once(log, outside, name):
    raw_path(log).write_bytes(b"one\n")
    (log.parent / name).unlink(missing_ok=True)
    os.mkfifo(log.parent / name)
    if name == "0.raw":  # nothing to follow
        await raw_follower(log).run(lambda: False)
    else:
        with pytest.raises(OSError, match="not a regular file"):
            await raw_follower(log).run(lambda: False)


async def test_numbers_in_the_note_of_a_raw_log_are_checked(log):
    log.unlink()
    raw_path(log).write_bytes(b"one\n")
    (log.parent / "0.raw.offset").write_text('{"offset": 99999999999999999999999, "log_size": -1}')
    await raw_follower(log).run(lambda: False)
    assert log.read_bytes().endswith(b" F one\n")


def test_the_message_from_a_large_log_reads_its_end_only(log):
    log.write_bytes(
        b"".join(format_record(1, b"stdout", b"%d" % number, partial=False) for number in range(99))
    )
    end = log.read_bytes()
    with log.open("wb") as file:
        file.truncate(600 * 1024 * 1024)  # sparse, and without one line end
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + end)
    with little_memory(2 * 1024 * 1024):
        text = message_from(log)
    assert text.splitlines() == [str(number) for number in range(19, 99)]


def test_the_message_from_one_endless_line_is_its_end(log):
    log.write_bytes(format_record(1, b"stdout", b"x" * 3_000_000 + b"end", partial=False))
    with little_memory(2 * 1024 * 1024):
        text = message_from(log)
    assert len(text) == 2048
    assert text.endswith("xend\n")


def message_from(log: Path) -> str:
    return read_message(log.parent / "none", policy="FallbackToLogsOnError", failed=True, log_file=log)


@pytest.mark.parametrize("kind", ["link", "fifo", "directory"])
def test_the_message_from_a_log_that_is_not_a_regular_file_says_so(log, outside, kind):
    log.unlink()
    make_instead(log, outside, kind)
    assert message_from(log) == "Error on reading termination message from logs: not a regular file"


async def test_a_line_without_end_is_read_in_parts_and_nothing_of_it_is_lost(log):
    text = b"x" * (3 * 1024 * 1024)
    log.write_bytes(
        format_record(1, b"stdout", text, partial=False) + format_record(2, b"stdout", b"next", partial=False)
    )
    found = await read_all(LogReader(blocking=inline), log, LogSelection())
    assert found == text + b"\nnext\n"
    assert await read_all(LogReader(blocking=inline), log, LogSelection(tail_lines=2)) == found
    assert await read_all(LogReader(blocking=inline), log, LogSelection(tail_lines=1)) == b"next\n"


async def test_a_file_without_any_line_costs_little_memory(log):
    os.truncate(log, 64 * 1024 * 1024)
    for options in (LogSelection(), LogSelection(tail_lines=10)):
        with little_memory(8 * 1024 * 1024):
            assert await read_all(LogReader(blocking=inline), log, options) == b""


def context(tmp_path: Path) -> NodeContext:
    return NodeContext(
        agent_id="a",
        node_name="n",
        root_dir=tmp_path / "root",
        pod_logs_dir=tmp_path / "pods",
        host_ips=("192.0.2.1",),
        allocatable={},
        memory_capacity_bytes=1,
    )


POD = msgspec.convert(
    {
        "metadata": {"name": "web", "namespace": "shop", "uid": "u1"},
        "spec": {"containers": [{"name": "c", "image": "app"}]},
    },
    Pod,
)


def test_a_restart_count_that_no_runtime_can_have_is_not_taken_from_a_log(log, tmp_path):
    (log.parent / "99999999999999999999.log").write_bytes(b"x")
    assert PodDirectories(context(tmp_path)).highest_attempt(POD, "c") == 0


def test_logs_are_not_removed_through_a_link(log, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "0.config").touch()
    remove_tree(log.parent)
    log.parent.symlink_to(elsewhere)
    PodDirectories(context(tmp_path)).remove_attempt(POD, "c", 0)
    assert (elsewhere / "0.config").exists()


def test_a_link_in_place_of_a_pods_log_directory_is_replaced(tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    directory = tmp_path / "pods" / "shop_web_u1"
    directory.parent.mkdir()
    directory.symlink_to(elsewhere)
    PodDirectories(context(tmp_path)).make(POD)
    assert directory.is_dir()
    assert not directory.is_symlink()
    assert elsewhere.stat().st_mode & 0o777 == 0o700


def deep_tree(top: Path, depth: int) -> None:
    """Directories in each other, deeper than a path may be long; a file in the innermost."""
    current = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=current)
        inner = os.open("d", os.O_RDONLY, dir_fd=current)
        os.close(current)
        current = inner
    file = os.open("file", os.O_WRONLY | os.O_CREAT, 0o600, dir_fd=current)
    os.write(file, b"x" * 100_000)
    os.close(file)
    os.close(current)


def test_a_deep_volume_is_measured_and_gets_its_group_whole(tmp_path):
    volume = tmp_path / "volume"
    volume.mkdir()
    depth = 3000  # deeper than Python recurses and than a process has descriptors
    deep_tree(volume, depth)
    try:
        found = measure(volume)
        assert found.inodes == depth + 2
        assert found.bytes >= 100_000
        set_group(volume, os.getgid())
        assert (volume / "d" / "d" / "d").stat().st_mode & 0o2070 == 0o2070
    finally:
        remove_tree(volume)
