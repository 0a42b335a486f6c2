from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from kubeletx.api import (
    Blocking,
    LogMode,
    PodUid,
    RuntimeName,
    SandboxId,
    SandboxState,
    SandboxSummary,
    SupportsLogReopen,
    SupportsLogStream,
    Traits,
    Unavailable,
    UnitId,
    UnitState,
    UnitSummary,
)
from kubeletx.pods.logs.file_watch import FileWatcher
from kubeletx.pods.logs.keeper import LogKeeper
from kubeletx.pods.logs.rotation import RotationLimits
from kubeletx.runtimes.handles.guarded import GuardedCalls
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.handles.snapshots import PodSnapshot
from kubeletx.testing.clock import FakeClock
from kubeletx_testing.waiting import until
from tests.unit.pods.environment_model import append, inline, make_node

T = TypeVar("T")
UID = PodUid("u1")


class FakeHandle:
    """A runtime with one pod and one unit, and both log capabilities."""

    def __init__(self, name: str, mode: LogMode) -> None:
        self.name = RuntimeName(name)
        self.traits: Traits | None = Traits(log_mode=mode)
        self.state = UnitState.RUNNING
        self.unit_name = "c"
        self.reopened: list[str] = []
        self.hangs = False
        self.path: Path | None = None
        self.pieces: asyncio.Queue[tuple[str, bytes] | None] = asyncio.Queue()

    def stream(self, method: str, start: Any, wrong: Any) -> Any:
        return GuardedCalls(self.name).stream(method, start, wrong)

    def pods(self) -> dict[PodUid, PodSnapshot]:
        sandbox = SandboxSummary(
            id=SandboxId("s"),
            uid=UID,
            name="web",
            namespace="shop",
            attempt=0,
            state=SandboxState.READY,
            created_at_ns=1,
        )
        unit = UnitSummary(
            id=UnitId(f"{self.name}-unit"),
            sandbox_id=SandboxId("s"),
            uid=UID,
            name=self.unit_name,
            attempt=2,
            state=self.state,
            created_at_ns=1,
        )
        return {UID: PodSnapshot(uid=UID, sandboxes=(sandbox,), units=(unit,))}

    def snapshot(self, uid: PodUid) -> PodSnapshot | None:
        return self.pods().get(uid)

    def capability(self, protocol: type[Any]) -> Any:
        return self if protocol in {SupportsLogReopen, SupportsLogStream} else None

    async def ask(self, method: str, start: Callable[[], Awaitable[Any]]) -> Any:
        return await start()

    async def reopen_log(self, unit_id: UnitId) -> None:
        if self.hangs:
            await asyncio.Event().wait()
        self.reopened.append(unit_id)
        assert self.path is not None
        self.path.touch()

    async def log_stream(self, unit_id: UnitId) -> AsyncIterator[tuple[str, bytes]]:
        while (piece := await self.pieces.get()) is not None:
            if piece[1] == b"break":
                raise Unavailable("connection lost")
            if piece[1] == b"bug":
                raise ZeroDivisionError("in a plugin")
            yield piece


class Bench:
    def __init__(self, tmp_path: Path, handles: list[FakeHandle], blocking: Blocking = inline) -> None:
        self.clock = FakeClock()
        self.directory = tmp_path / "logs/shop_web_u1/c"
        self.directory.mkdir(parents=True)
        self.log = self.directory / "2.log"
        self.watcher = FileWatcher()
        self.keeper = LogKeeper(
            handles=lambda: cast("tuple[RuntimeHandle, ...]", tuple(handles)),
            context=make_node(pod_logs_dir=tmp_path / "logs"),
            blocking=blocking,
            clock=self.clock,
            watcher=self.watcher,
            limits=RotationLimits(max_size_bytes=100),
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.keeper.run(), name="logs")
        try:
            yield
        finally:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            self.watcher.close()

    async def until(self, expected: list[bytes]) -> None:
        """The log holds these lines (without their times)."""
        async with asyncio.timeout(60):
            await until(lambda: self.log.exists() and self.lines() == expected)

    def lines(self) -> list[bytes]:
        return [line.split(b" ", 1)[1] for line in self.log.read_bytes().splitlines()]


async def test_large_files_of_living_units_are_rotated(tmp_path: Path) -> None:
    handle = FakeHandle("a", LogMode.FILE)
    bench = Bench(tmp_path, [handle])
    handle.path = bench.log
    bench.log.write_bytes(b"x" * 101)
    async with bench.running():
        await bench.clock.run_for(11)
    assert handle.reopened == ["a-unit"]
    assert bench.log.read_bytes() == b""


@pytest.mark.parametrize("state", [UnitState.PAUSED, UnitState.SUSPENDED])
async def test_the_log_of_a_frozen_unit_is_looked_at_again_when_it_runs(
    tmp_path: Path, state: UnitState
) -> None:
    handle = FakeHandle("a", LogMode.FILE)
    handle.state = state
    bench = Bench(tmp_path, [handle])
    handle.path = bench.log
    bench.log.write_bytes(b"x" * 101)
    async with bench.running():
        await bench.clock.run_for(31)
        assert handle.reopened == []
        handle.state = UnitState.RUNNING
        await bench.clock.run_for(11)
    assert handle.reopened == ["a-unit"]


@pytest.mark.parametrize("name", ["a\0b", "../../outside", "", "\ud800"])
async def test_a_unit_with_a_name_that_no_container_has_stops_no_rotation(tmp_path: Path, name: str) -> None:
    handle, liar = FakeHandle("a", LogMode.FILE), FakeHandle("b", LogMode.FILE)
    liar.unit_name = name
    bench = Bench(tmp_path, [liar, handle])
    handle.path = liar.path = bench.log
    (tmp_path / "outside").mkdir()
    outside = tmp_path / "outside/2.log"
    for path in (bench.log, outside):
        path.write_bytes(b"x" * 101)
    async with bench.running():
        await bench.clock.run_for(11)
    assert (handle.reopened, liar.reopened) == (["a-unit"], [])
    assert outside.read_bytes() == b"x" * 101


async def test_an_ended_unit_and_an_unopened_runtime_are_left_alone(tmp_path: Path) -> None:
    handle, unopened = FakeHandle("a", LogMode.FILE), FakeHandle("b", LogMode.FILE)
    handle.state, unopened.traits = UnitState.EXITED, None
    bench = Bench(tmp_path, [handle, unopened])
    bench.log.write_bytes(b"x" * 101)
    async with bench.running():
        await bench.clock.run_for(31)
    assert (handle.reopened, unopened.reopened) == ([], [])


async def test_a_runtime_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    hanging, healthy = FakeHandle("a", LogMode.FILE), FakeHandle("b", LogMode.FILE)
    hanging.hangs = True
    bench = Bench(tmp_path, [hanging, healthy])
    healthy.path = bench.log
    async with bench.running():
        for _ in range(3):
            bench.log.write_bytes(b"x" * 101)
            await bench.clock.run_for(11)
    assert len(healthy.reopened) >= 2


async def test_raw_files_are_followed_also_of_units_that_ended_meanwhile(tmp_path: Path) -> None:
    handle = FakeHandle("a", LogMode.RAW_FILE)
    bench = Bench(tmp_path, [handle])
    raw = bench.directory / "2.raw"
    append(raw, b"one\n")
    async with bench.running():
        await bench.until([b"stdout F one"])
        append(raw, b"two\n")
        await bench.until([b"stdout F one", b"stdout F two"])
    append(raw, b"three")
    handle.state = UnitState.EXITED
    async with bench.running():
        await bench.until([b"stdout F one", b"stdout F two", b"stdout F three"])


async def test_a_unit_that_starts_again_after_its_end_goes_on_in_the_same_log(tmp_path: Path) -> None:
    handle = FakeHandle("a", LogMode.RAW_FILE)
    bench = Bench(tmp_path, [handle])
    raw = bench.directory / "2.raw"
    append(raw, b"one\n")
    handle.state = UnitState.EXITED
    async with bench.running():
        await bench.until([b"stdout F one"])
        await bench.clock.run_for(3)
        handle.state = UnitState.RUNNING
        append(raw, b"two\n")
        await bench.clock.run_for(3)
        await bench.until([b"stdout F one", b"stdout F two"])


@pytest.mark.parametrize("broken", [1, 3])
async def test_the_rest_of_an_ended_units_log_is_written_after_an_error(tmp_path: Path, broken: int) -> None:
    calls = 0

    async def blocking(function: Callable[..., T], *args: Any) -> T:
        nonlocal calls
        calls += 1
        if calls == broken:
            raise Unavailable("no thread is free")
        return function(*args)

    handle = FakeHandle("a", LogMode.RAW_FILE)
    handle.state = UnitState.EXITED
    bench = Bench(tmp_path, [handle], blocking)
    append(bench.directory / "2.raw", b"one\ntwo")
    async with bench.running():
        await bench.clock.run_for(12)
        await bench.until([b"stdout F one", b"stdout F two"])
        made = calls
        await bench.clock.run_for(30)
    assert calls == made, "its log is complete"


async def test_a_unit_that_was_started_is_followed_at_once_when_told(tmp_path: Path) -> None:
    handles: list[FakeHandle] = []
    bench = Bench(tmp_path, handles)
    append(bench.directory / "2.raw", b"one\n")
    async with bench.running():
        await bench.clock.settle()
        handles.append(FakeHandle("a", LogMode.RAW_FILE))
        bench.keeper.wake()
        await bench.until([b"stdout F one"])


async def test_a_stream_is_written_and_taken_up_again_after_it_broke(tmp_path: Path) -> None:
    handle = FakeHandle("a", LogMode.STREAM)
    bench = Bench(tmp_path, [handle])
    async with bench.running():
        handle.pieces.put_nowait(("stdout", b"one\n"))
        await bench.until([b"stdout F one"])
        handle.pieces.put_nowait(("stdout", b"break"))
        await bench.clock.run_for(15)
        handle.pieces.put_nowait(("stderr", b"two\n"))
        await bench.until([b"stdout F one", b"stderr F two"])
        handle.state = UnitState.EXITED
        handle.pieces.put_nowait(None)
        await bench.clock.run_for(5)


async def test_a_bug_in_one_plugins_stream_ends_no_other_log(tmp_path: Path) -> None:
    handles = [FakeHandle("broken", LogMode.STREAM), FakeHandle("good", LogMode.STREAM)]
    bench = Bench(tmp_path, handles)
    async with bench.running():
        handles[0].pieces.put_nowait(("stdout", b"bug"))
        await bench.clock.run_for(1)
        handles[1].pieces.put_nowait(("stdout", b"still here\n"))
        await bench.until([b"stdout F still here"])
