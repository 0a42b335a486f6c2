from __future__ import annotations

import asyncio
import gzip
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import Unavailable
from kubeletx.pods.logs.rotation import (
    LogRotator,
    OpenLog,
    RotationLimits,
    pack,
    plan_housekeeping,
    rotated_name,
)
from kubeletx.testing.clock import FakeClock
from kubeletx.volumes.files.held import hold_directory
from tests.unit.pods.environment_model import inline

LIMITS = RotationLimits(max_size_bytes=100, max_files=4)
STAMPS = ["20260101-000001", "20260101-000002", "20260101-000003", "20260101-000004"]
ROTATED = st.sets(
    st.builds(
        lambda stamp, end: f"0.log.{stamp}{end}",
        st.sampled_from(STAMPS),
        st.sampled_from(["", ".gz", ".gz.tmp"]),
    )
)


@given(ROTATED, st.integers(2, 6))
def test_after_housekeeping_there_is_room_for_one_more_file(rotated, max_files):
    present = {"0.log", "1.log", "1.log.20260101-000001", *rotated}
    plan = plan_housekeeping("0.log", present, max_files)
    left = present - set(plan.remove)
    ours = {name for name in left if name.startswith("0.log.")}
    assert len(ours) + 2 <= max_files
    assert {"0.log", "1.log", "1.log.20260101-000001"} <= left
    assert set(plan.pack) == {name for name in ours if not name.endswith(".gz")}
    stamps = {name.split(".")[2] for name in rotated if not name.endswith(".tmp")}
    assert {name.split(".")[2] for name in ours} == set(sorted(stamps)[len(stamps) - len(ours) :])


def test_names_sort_by_time():
    first = rotated_name("0.log", datetime(2026, 9, 9, 9, 9, 9, tzinfo=UTC))
    assert first == "0.log.20260909-090909"
    assert first < rotated_name("0.log", datetime(2026, 10, 1, tzinfo=UTC))


def test_a_packed_file_holds_the_same_text(tmp_path):
    path = tmp_path / "0.log.20260101-000001"
    path.write_bytes(b"text" * 1000)
    path.chmod(0o640)
    with hold_directory(tmp_path) as directory:
        pack(directory, path.name)
    packed = tmp_path / "0.log.20260101-000001.gz"
    assert gzip.decompress(packed.read_bytes()) == b"text" * 1000
    assert packed.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in tmp_path.iterdir()] == [packed.name]


class FakeRuntimeLog:
    """A runtime that opens the path again when it is asked to, unless it is `down`."""

    def __init__(self, path: Path) -> None:
        self.path, self.down, self.reopened = path, False, 0

    async def reopen(self) -> None:
        if self.down:
            raise Unavailable("runtime does not answer")
        self.reopened += 1
        self.path.touch()

    @property
    def open_log(self) -> OpenLog:
        return OpenLog(path=self.path, reopen=self.reopen, pod="shop/web", container="c")


@pytest.fixture
def runtime(tmp_path: Path) -> FakeRuntimeLog:
    return FakeRuntimeLog(tmp_path / "0.log")


def rotator(clock: FakeClock) -> LogRotator:
    return LogRotator(blocking=inline, clock=clock, limits=LIMITS)


async def test_a_large_log_is_renamed_reopened_and_older_ones_are_packed(runtime):
    clock = FakeClock()
    for number in range(7):
        runtime.path.write_bytes(b"%d" % number * 101)
        await rotator(clock).rotate_all([runtime.open_log])
        clock.advance(60)
    names = sorted(one.name for one in runtime.path.parent.iterdir())
    assert names == [
        "0.log",
        "0.log.20300101-000400.gz",
        "0.log.20300101-000500.gz",
        "0.log.20300101-000600",
    ]
    assert runtime.reopened == 7
    assert runtime.path.read_bytes() == b""


async def test_a_small_or_missing_log_is_left_alone(runtime, tmp_path):
    runtime.path.write_bytes(b"x" * 100)
    gone = OpenLog(path=tmp_path / "gone.log", reopen=runtime.reopen)
    await rotator(FakeClock()).rotate_all([runtime.open_log, gone])
    assert runtime.reopened == 0


async def test_a_rotation_that_an_agent_left_half_done_is_finished(runtime):
    rotated = runtime.path.with_name("0.log.20260101-000001")
    rotated.write_bytes(b"the runtime goes on writing here")
    runtime.down = True
    await rotator(FakeClock()).rotate_all([runtime.open_log])
    assert not runtime.path.exists()
    runtime.down = False
    await rotator(FakeClock()).rotate_all([runtime.open_log])
    assert (runtime.reopened, runtime.path.exists(), rotated.exists()) == (1, True, True)
    await rotator(FakeClock()).rotate_all([runtime.open_log])
    assert runtime.reopened == 1


async def test_a_runtime_that_cannot_reopen_gets_its_name_back(runtime):
    runtime.path.write_bytes(b"x" * 101)
    runtime.down = True
    await rotator(FakeClock()).rotate_all([runtime.open_log])
    assert [one.name for one in runtime.path.parent.iterdir()] == ["0.log"]
    assert runtime.path.read_bytes() == b"x" * 101


async def test_one_failure_does_not_hold_up_other_logs(runtime, tmp_path):
    other = FakeRuntimeLog(tmp_path / "1.log")
    for one in (runtime, other):
        one.path.write_bytes(b"x" * 101)
    runtime.down = True
    await rotator(FakeClock()).rotate_all([runtime.open_log, other.open_log])
    assert other.reopened == 1


async def test_logs_are_looked_at_every_ten_seconds(runtime):
    clock = FakeClock()
    runtime.path.write_bytes(b"x" * 101)
    task = asyncio.create_task(rotator(clock).run(lambda: [runtime.open_log]), name="rotator")
    await clock.run_for(9)
    assert runtime.reopened == 0
    await clock.run_for(2)
    assert runtime.reopened == 1
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
