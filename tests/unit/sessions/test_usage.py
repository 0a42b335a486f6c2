"""Usage of sessions for billing: rows, totals of applications, restarts, and the file of ended sessions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Set
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import PodUid, Unavailable
from kubeletx.sessions.meter import LogPosition, PodReading
from kubeletx.sessions.stubs import session_service_pb2 as pb
from kubeletx.sessions.usage import OTHERS, TOTALS_LIMIT, SessionUsage
from kubeletx.sessions.usage_records import USAGE_TABLES, UsageFile, UsageRecords, UsageRow
from kubeletx.store import Store
from kubeletx.testing.clock import FakeClock
from tests.unit.sessions.room import UID, LockedStore, Pods, Room, running_room


class Kernel:
    """Counters of the one pod: two CPU seconds each second, 1,000 bytes of memory, ten bytes of log each second."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.reads = 0
        self.problem: Exception | None = None

    async def read(self, uids: Set[PodUid]) -> dict[PodUid, PodReading]:
        self.reads += 1
        if self.problem is not None:
            raise self.problem
        at = self.clock.monotonic()
        log = LogPosition(container="main", file="main/0.log", inode=7, offset=int(at * 10))
        return dict.fromkeys(uids, PodReading(cpu_seconds=2 * at, memory_bytes=1000, logs=(log,)))


class Counted:
    """A room whose usage is counted."""

    def __init__(self, room: Room, usage: SessionUsage, kernel: Kernel, file: Path, store: Store) -> None:
        self.room = room
        self.store = store
        self.usage = usage
        self.kernel = kernel
        self.file = file

    def row(self, id: str = "default/s1") -> UsageRow:
        (row,) = [one for one in self.usage.rows() if one.id == id]
        return row

    def total(self, key: str = "default/shop") -> Any:
        return self.usage.totals.items[key].costs

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.file.read_text().splitlines()] if self.file.exists() else []

    async def open(self, id: str = "default/s1", *clients: str, application: str = "shop") -> None:
        application_ = self.room.connect()
        await self.room.open(id, application=application)
        application_.report(pb.STATE_OPEN, *clients, session=id)
        await self.room.clock.run_for(0.2)

    async def close(self, id: str = "default/s1") -> None:
        await self.room.sessions.close(id)
        await self.room.settle()
        self.room.connect().report(pb.STATE_CLOSED, session=id)
        await self.room.clock.run_for(0.2)


@asynccontextmanager
async def running(
    path: Path,
    clock: FakeClock,
    pods: Pods,
    *,
    totals_limit: int = TOTALS_LIMIT,
    store_type: type[Store] = Store,
) -> AsyncIterator[Counted]:
    """One life of an agent over the database and the file in `path`."""

    async def blocking(function: Callable[..., Any], *args: Any) -> Any:
        return function(*args)

    store = await store_type.open(path / "usage.db", [USAGE_TABLES])
    async with running_room(path / "state.db", clock=clock, pods=pods) as room:
        kernel, file = Kernel(clock), path / "usage.jsonl"
        usage = SessionUsage(
            room.sessions,
            read=kernel.read,
            records=UsageRecords(store, clock),
            file=UsageFile(file),
            blocking=blocking,
            clock=clock,
            totals_limit=totals_limit,
        )
        await usage.load()
        task = asyncio.create_task(usage.run(), name="session-usage")
        await room.settle()
        try:
            yield Counted(room, usage, kernel, file, store)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await usage.stop()
            await store.close()


Start = Callable[..., AbstractAsyncContextManager[Counted]]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """Start one life of the agent; its pod, its clock and its files survive it."""
    pods = Pods()
    pods.add()
    return partial(running, tmp_path, FakeClock(), pods)


async def test_a_session_is_counted_from_ready_to_its_end(start: Start) -> None:
    async with start() as here:
        await here.open("default/s1", "ann", "bob")
        await here.room.clock.run_for(100)
        await here.close()
        row, costs = here.row(), here.row().costs
        assert row.closed_at is not None
        assert costs.open_seconds == pytest.approx((row.closed_at - row.opened_at).total_seconds())
        assert costs.client_seconds == pytest.approx(2 * costs.open_seconds)
        assert costs.cpu_seconds == pytest.approx(2 * costs.open_seconds)
        assert costs.memory_byte_seconds == pytest.approx(1000 * costs.open_seconds)
        assert here.total() == costs
        (line,) = here.lines()
        assert (line["id"], line["application"], line["podId"]) == ("default/s1", "shop", "default/web")
        assert (line["opened"], line["cpuSeconds"]) == (1, costs.cpu_seconds)
        (first,), (last,) = line["logsAtOpen"], line["logsAtClose"]
        assert last["offset"] - first["offset"] == pytest.approx(10 * costs.open_seconds, abs=10)
        assert "reading" not in line


async def test_sessions_of_one_pod_share_and_applications_have_totals(start: Start) -> None:
    async with start() as here:
        await here.open("default/s1")
        await here.open("default/s2", application="game")
        await here.room.clock.run_for(60)
        await here.usage.refresh()
        one, two = here.total("default/shop"), here.total("default/game")
        assert one.cpu_seconds - two.cpu_seconds == pytest.approx(0.4)  # 0.2 s alone
        assert two.cpu_seconds == pytest.approx(two.open_seconds)
        samples = {metric.name: dict(metric.samples()) for metric in here.usage.metrics()}
        assert samples["kubeletx_session_cpu_seconds_total"]["default", "game"] == two.cpu_seconds
        assert samples["kubeletx_sessions_opened_total"]["default", "shop"] == 1


async def test_nothing_is_read_without_open_sessions(start: Start) -> None:
    async with start() as here:
        await here.room.clock.run_for(600)
        assert (here.kernel.reads, here.lines()) == (0, [])
        await here.room.open("default/s1", open_timeout_seconds=5)
        await here.room.clock.run_for(60)
        assert here.room.session().reason == "OpenTimeout"
        assert (here.kernel.reads, here.usage.rows(), here.usage.totals.items) == (0, (), {})


async def test_counting_goes_on_after_a_restart(start: Start) -> None:
    async with start() as here:
        await here.open("default/s1", "ann")
        clock, began = here.room.clock, here.row().opened_at
        await clock.run_for(30)
    clock.advance(500)
    async with start() as here:
        await clock.run_for(30)
        await here.close()
        costs = here.row().costs
        assert costs.opened == here.total().opened == 1
        assert costs.open_seconds == pytest.approx((clock.now() - began).total_seconds() - 0.2, abs=0.1)
        assert costs.cpu_seconds == pytest.approx(2 * costs.open_seconds)
        assert costs.client_seconds == pytest.approx(costs.open_seconds)
    async with start() as here:
        assert here.total() == costs
        assert len(here.lines()) == 1


async def test_a_session_that_ended_while_the_agent_was_away_is_exported(
    start: Start, tmp_path: Path
) -> None:
    async with start() as here:
        await here.open()
        await here.room.clock.run_for(61)
    (tmp_path / "state.db").unlink()  # and the sessions are unknown
    async with start() as here:
        await here.room.clock.run_for(1)
        (line,) = here.lines()
        assert line["openSeconds"] == pytest.approx(61.2)
        assert line["logsAtClose"]


async def test_rows_are_removed_ten_minutes_after_the_end_and_totals_stay(start: Start) -> None:
    async with start() as here:
        await here.open()
        await here.close()
        await here.room.clock.run_for(700)
        assert (here.usage.rows(), here.usage.removed) == ((), 1)
    async with start() as here:
        assert here.usage.rows() == ()
        assert here.total().opened == 1


async def test_a_name_that_is_used_again_has_usage_of_its_own(start: Start) -> None:
    async with start() as here:
        for _ in range(2):
            await here.open()
            await here.close()
        assert [line["opened"] for line in here.lines()] == [1, 1]
        found = here.usage.find(here.room.session())
        assert found is not None
        assert found.costs.open_seconds < here.total().open_seconds


async def test_pods_that_cannot_be_read_and_a_full_disk_are_tried_again(start: Start) -> None:
    async with start() as here:
        await here.open()
        here.kernel.problem = Unavailable("no answer")
        here.file.mkdir()
        await here.close()
        assert here.row().costs.open_seconds > 0
        here.file.rmdir()
        here.kernel.problem = None
        await here.room.clock.run_for(61)
        assert len(here.lines()) == 1


async def test_a_session_whose_last_reading_fails_gets_its_cpu_from_the_next_one(start: Start) -> None:
    async with start() as here:
        await here.open("default/a")
        await here.room.clock.run_for(30)
        here.kernel.problem = Unavailable("no answer")
        await here.close("default/a")
        await here.open("default/b", application="game")
        assert here.lines() == []
        here.kernel.problem = None
        await here.room.clock.run_for(90)
        await here.close("default/b")
        for line in here.lines():
            assert line["cpuSeconds"] == pytest.approx(2 * line["openSeconds"], rel=0.05)
            assert line["memoryByteSeconds"] == pytest.approx(1000 * line["openSeconds"], rel=0.05)
        assert [line["id"] for line in here.lines()] == ["default/a", "default/b"]


async def test_a_session_waits_only_some_minutes_for_its_last_reading(start: Start) -> None:
    async with start() as here:
        await here.open("default/a")
        await here.open("default/b", application="game")
        await here.room.clock.run_for(30)
        here.kernel.problem = Unavailable("no answer")
        await here.close("default/a")
        await here.room.clock.run_for(170)
        assert here.lines() == []
        await here.room.clock.run_for(80)
        here.kernel.problem = None
        await here.close("default/b")
        a, b = here.lines()
        assert a["memoryByteSeconds"] > 0
        assert b["cpuSeconds"] + a["cpuSeconds"] == pytest.approx(2 * (b["openSeconds"] - 15), rel=0.05)


async def test_only_some_applications_have_totals(start: Start) -> None:
    async with start(totals_limit=2) as here:
        for number in range(5):
            await here.open(f"default/s{number}", application=f"a{number}")
            await here.close(f"default/s{number}")
        assert set(here.usage.totals.items) == {OTHERS, "default/a3", "default/a4"}
        assert sum(one.costs.opened for one in here.usage.totals.items.values()) == 5
    async with start(totals_limit=2) as here:
        assert set(here.usage.totals.items) == {OTHERS, "default/a3", "default/a4"}


async def test_totals_of_a_database_that_cannot_be_read_at_first_are_added_to(start: Start) -> None:
    async with start() as here:
        clock, began = here.room.clock, here.room.clock.now()
        await here.open("default/s1")
        await here.open("default/s2")
        await here.close("default/s2")
    clock.advance(30)
    async with start(store_type=LockedStore, totals_limit=1) as here:
        await clock.run_for(30)
        await here.open("default/s3")
        await here.close("default/s3")
        await here.open("default/s4", application="game")
        assert isinstance(here.store, LockedStore)
        await here.store.unlock(clock)
        totals = {key: total.costs.opened for key, total in here.usage.totals.items.items()}
        assert totals == {OTHERS: 3, "default/game": 1}
        await here.close("default/s1")
        await here.close("default/s4")
        assert here.row("default/s1").costs.open_seconds == pytest.approx(
            (clock.now() - began).total_seconds(), abs=1
        )
        costs = here.usage.totals.items
    async with start(totals_limit=1) as here:
        assert here.usage.totals.items == costs
        assert sorted(line["id"] for line in here.lines()) == [f"default/s{number}" for number in range(1, 5)]


@given(st.lists(st.integers(1, 8), max_size=12))
def test_full_files_are_renamed_and_only_some_are_kept(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int]
) -> None:
    directory = tmp_path_factory.mktemp("usage")
    file, clock = UsageFile(directory / "x" / "usage.jsonl", max_bytes=1000, files=3), FakeClock()
    row = UsageRow(
        key="k",
        id="default/s1",
        pod_id="default/web",
        pod_uid=UID,
        application="shop",
        origin="local",
        created_at=clock.now(),
        opened_at=clock.now(),
        counted_at=clock.now(),
    )
    for count in batches:
        file.append([row] * count)
    found = sorted(path.name for path in directory.glob("x/*"))
    assert found == ["usage.jsonl", "usage.jsonl.1", "usage.jsonl.2"][: len(found)]
    lines = [line for path in directory.glob("x/*") for line in path.read_bytes().splitlines()]
    assert len(lines) <= sum(batches)
    assert all(json.loads(line)["id"] == "default/s1" for line in lines)
