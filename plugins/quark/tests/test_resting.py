"""Which containers count as frozen while calls and other programs change them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest
import pytest_asyncio
from kubeletx_quark import standby
from kubeletx_quark.cgroups import Hierarchy
from kubeletx_quark.config import StrategyName
from kubeletx_quark.freezer import Freezer
from kubeletx_quark.freezers import Freezers, Seen
from kubeletx_quark.killed import ENDED_SECONDS
from kubeletx_quark.pause_strategy import PauseStrategy
from kubeletx_quark.plugin import make_runtime
from kubeletx_quark.reclaim import Reclaimed
from kubeletx_quark.resting import Resting
from kubeletx_quark.signal_strategy import SignalStrategy
from msgspec.structs import replace

from kubeletx.api import (
    Host,
    PodUid,
    Runtime,
    SandboxId,
    SupportsEvents,
    SupportsStandby,
    Unavailable,
    UnitId,
    UnitState,
    UnitSummary,
    names,
)
from kubeletx.cri import ContainerdTask, ContainerdTasks, CriClient, TaskState
from kubeletx.cri.stubs import containerd_events_pb2 as ev
from kubeletx.testing import FakeClock, FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx.testing.cri_server import FakeCriServer
from kubeletx_testing.waiting import let_others_work, until

UNIT = UnitId("u1")
NO_PROCESS = 2**22 + 1
"""No process has this id: it is above the kernel's largest."""
LABELS = {names.AGENT_ID: "agent-under-test", names.RUNTIME_NAME: "under-test"}


def summary(state: UnitState = UnitState.RUNNING) -> UnitSummary:
    return UnitSummary(
        id=UNIT,
        sandbox_id=SandboxId("s1"),
        uid=PodUid("p1"),
        name="main",
        attempt=0,
        state=state,
        created_at_ns=0,
        labels=LABELS,
    )


class StubFreezers:
    """Freezers that show `hint` to a look and `now` to a read; `meanwhile` is called during a look."""

    def __init__(self, hint: Seen, now: bool, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.hint, self.now, self.meanwhile = hint, now, meanwhile

    async def look(self, unit_ids: Iterable[UnitId], *, is_whole: bool) -> dict[UnitId, Seen]:
        found = dict.fromkeys(unit_ids, self.hint)
        self.meanwhile()
        return found

    def is_frozen(self, unit_id: UnitId) -> bool | None:
        return self.now

    def add(self, unit_id: UnitId, pid: int) -> None:
        return None


def resting(tmp_path: Path, freezers: StubFreezers) -> Resting:
    host, tasks = FakeHost(tmp_path), ContainerdTasks(CriClient("unix:///nowhere.sock"))
    return Resting(
        freezers=cast("Freezers", freezers),
        pause=PauseStrategy(tasks),
        by_signal=SignalStrategy(tasks, host, 19, 18),
        tasks=tasks,
        host=host,
        labels=LABELS,
    )


async def test_a_freeze_that_ends_during_a_look_stays_known(tmp_path: Path) -> None:
    freezers = StubFreezers(Seen(is_frozen=False), now=True)
    found = resting(tmp_path, freezers)
    freezers.meanwhile = lambda: found.add(UNIT, StrategyName.FREEZER)
    await found.look([summary()], is_whole=True)
    assert found.state_of(summary()) is UnitState.PAUSED


async def test_a_thaw_that_ends_during_a_look_stays_known(tmp_path: Path) -> None:
    freezers = StubFreezers(Seen(is_frozen=True, killed=(7,)), now=False)
    found = resting(tmp_path, freezers)
    found.add(UNIT, StrategyName.FREEZER)
    freezers.meanwhile = lambda: found.drop(UNIT)
    assert await found.look([summary()], is_whole=True) == {}
    assert found.state_of(summary()) is UnitState.RUNNING


async def test_a_container_with_a_call_in_flight_is_left_out(tmp_path: Path) -> None:
    freezers = StubFreezers(Seen(is_frozen=False), now=False)
    found = resting(tmp_path, freezers)
    found.add(UNIT, StrategyName.FREEZER)
    with found.call(UNIT):
        await found.look([summary()], is_whole=True)
        assert found.state_of(summary()) is UnitState.PAUSED
    await found.look([summary()], is_whole=True)
    assert found.state_of(summary()) is UnitState.RUNNING


async def test_killed_processes_are_reported_of_frozen_containers_without_a_call(tmp_path: Path) -> None:
    found = resting(tmp_path, StubFreezers(Seen(is_frozen=True, killed=(7,)), now=True))
    found.add(UNIT, StrategyName.PAUSE)
    with found.call(UNIT):
        assert await found.look([summary()], is_whole=False) == {}
    assert await found.look([summary()], is_whole=False) == {UNIT: (7,)}


async def test_an_ended_container_is_dropped(tmp_path: Path) -> None:
    found = resting(tmp_path, StubFreezers(Seen(is_frozen=True), now=True))
    found.add(UNIT, StrategyName.FREEZER)
    found.add_hibernated(UNIT)
    ended = summary(UnitState.EXITED)
    await found.look([ended], is_whole=True)
    assert (found.state_of(ended), UNIT in found, found.is_hibernated(UNIT)) == (
        UnitState.EXITED,
        False,
        False,
    )


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncIterator[FakeCriServer]:
    async with FakeCriServer(tmp_path, uuid="1234") as one:
        one.model.add_image("busybox")
        yield one


async def started(runtime: Runtime) -> UnitId:
    sandbox = sandbox_spec("one")
    sandbox_id = await runtime.create_sandbox(sandbox)
    unit_id = await runtime.create_unit(sandbox_id, unit_spec("main"), sandbox)
    await runtime.start_unit(unit_id)
    return unit_id


async def listed(runtime: Runtime) -> UnitState:
    (one,) = await runtime.list_units({names.POD_UID: "uid-one"})
    return one.state


async def test_a_pause_by_another_program_of_a_container_without_cgroup_is_seen_by_its_event(
    server: FakeCriServer, tmp_path: Path
) -> None:
    runtime = make_runtime(endpoint(f"{server.url}?strategy=pause"), None, FakeHost(tmp_path))
    await runtime.open()
    unit_id = await started(runtime)
    stream = runtime.capability(SupportsEvents)
    assert stream is not None
    seen: list[Any] = []

    async def read() -> None:
        async for event in stream.events():
            seen.append(event)

    task = asyncio.create_task(read(), name="events")
    await server.wait_subscribed("Subscribe")
    assert await listed(runtime) is UnitState.RUNNING
    server.model.paused.add(unit_id)
    server.emit_containerd("/tasks/paused", ev.TaskPaused(container_id=unit_id))
    while not seen:
        await let_others_work()
    assert await listed(runtime) is UnitState.PAUSED
    able = runtime.capability(SupportsStandby)
    assert able is not None
    await able.thaw(unit_id)
    assert not server.model.paused
    assert await listed(runtime) is UnitState.RUNNING
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await runtime.close()


async def test_a_resume_by_another_program_of_a_container_without_cgroup_is_seen(
    server: FakeCriServer, tmp_path: Path
) -> None:
    runtime = make_runtime(endpoint(f"{server.url}?strategy=pause"), None, FakeHost(tmp_path))
    await runtime.open()
    unit_id = await started(runtime)
    able = runtime.capability(SupportsStandby)
    assert able is not None
    await able.freeze(unit_id)
    assert await listed(runtime) is UnitState.PAUSED
    server.model.paused.clear()
    assert await listed(runtime) is UnitState.RUNNING
    await runtime.close()


async def test_notes_on_limits_of_swap_of_containers_that_are_gone_are_removed(
    server: FakeCriServer, tmp_path: Path
) -> None:
    host = FakeHost(tmp_path)
    note = host.state_directory / "swap-limits" / "gone"
    note.parent.mkdir(parents=True)
    note.write_text("0")
    runtime = make_runtime(endpoint(server.url), None, host)
    await runtime.open()
    assert not note.exists()
    await runtime.close()


class KilledInside(StubFreezers):
    """Freezers that show every container as frozen, with `pid` killed. `finished` has what `finish` gets."""

    def __init__(self, pid: int) -> None:
        super().__init__(Seen(is_frozen=True, killed=(pid,)), now=True)
        self.finished: list[UnitId] = []

    async def finish(self, unit_ids: Iterable[UnitId]) -> None:
        self.finished += unit_ids


def labelled(unit_id: str, **labels: str) -> UnitSummary:
    return replace(summary(), id=UnitId(unit_id), labels=labels)


class RunningTasks:
    """Tasks of containers that run."""

    async def get(self, task_id: str) -> ContainerdTask:
        return ContainerdTask(id=task_id, state=TaskState.RUNNING, pid=1)


class Thawing:
    """A strategy that notes which containers it thaws."""

    def __init__(self) -> None:
        self.thawed: list[UnitId] = []

    async def thaw(self, unit_id: UnitId) -> None:
        self.thawed.append(unit_id)


def letting_end(strategy: Thawing, found: Resting, host: Host) -> standby.Standby:
    return standby.Standby(
        {StrategyName.FREEZER: cast("Any", strategy)},
        cast("Any", None),
        resting=found,
        freezers=cast("Any", None),
        tasks=cast("ContainerdTasks", RunningTasks()),
        host=host,
    )


async def test_containers_of_other_agents_are_neither_thawed_nor_frozen_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    freezers, strategy = KilledInside(NO_PROCESS), Thawing()
    found = resting(tmp_path, freezers)
    one = letting_end(strategy, found, FakeHost(tmp_path))
    others = [
        labelled("of another agent", **(LABELS | {names.AGENT_ID: "another"})),
        labelled("of another runtime", **(LABELS | {names.RUNTIME_NAME: "another"})),
        labelled("of no agent"),
    ]
    listed = [summary(), *others]
    for unit in listed:
        found.add(unit.id, StrategyName.FREEZER)
    await one.look(listed, is_whole=True)
    assert strategy.thawed == [UNIT]
    assert all(found.state_of(unit) is UnitState.PAUSED for unit in others)
    monkeypatch.setattr(found, "find_strategy", AsyncMock(return_value=None))
    await found.open(listed)
    assert freezers.finished == [UNIT]
    with found.call(UNIT):
        await found.open(listed)
    assert freezers.finished == [UNIT]


async def test_processes_that_do_not_end_delay_a_list_only_once(tmp_path: Path) -> None:
    clock = FakeClock(auto_advance=True)
    found, strategy = resting(tmp_path, KilledInside(os.getpid())), Thawing()
    one = letting_end(strategy, found, FakeHost(tmp_path, clock=clock))
    listed = [labelled(f"u{number}", **LABELS) for number in range(5)]
    for unit in listed:
        found.add(unit.id, StrategyName.FREEZER)
    began = clock.monotonic()
    assert await one.look(listed, is_whole=True) == []
    assert strategy.thawed == [unit.id for unit in listed]
    assert clock.monotonic() - began == pytest.approx(ENDED_SECONDS, abs=0.1)


class WithoutThreads(FakeHost):
    """A host whose threads are all in use."""

    async def blocking(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        raise Unavailable("no thread for this call")


async def test_a_look_at_one_pod_needs_no_thread(tmp_path: Path) -> None:
    directory = tmp_path / "cgroup"
    directory.mkdir()
    (directory / "freezer.state").write_text("FROZEN")
    (directory / "cgroup.procs").write_text("")
    tasks = ContainerdTasks(CriClient("unix:///nowhere.sock"))
    freezers = Freezers(tasks, WithoutThreads(tmp_path))
    freezers._hierarchy = Hierarchy(1, "freezer", tmp_path, "/")
    freezers._known[UNIT] = Freezer(directory, 1)
    assert await freezers.look([UNIT], is_whole=False) == {UNIT: Seen(is_frozen=True)}
    with pytest.raises(Unavailable):
        await freezers.look([UNIT], is_whole=True)


class Counting(FakeHost):
    """A host whose threads return once `gate` is set; counts the calls, and the most of them at one time."""

    def __init__(self, state_directory: Path) -> None:
        super().__init__(state_directory)
        self.gate = asyncio.Event()
        self.begun = self.running = self.most = 0

    async def blocking(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.begun += 1
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.gate.wait()
        finally:
            self.running -= 1
        return Reclaimed(before_bytes=2, after_bytes=1)


@pytest.fixture
def host(tmp_path: Path) -> Counting:
    return Counting(tmp_path)


@pytest.fixture
def frozen(tmp_path: Path) -> Resting:
    """Twenty frozen containers."""
    found = resting(tmp_path, StubFreezers(Seen(is_frozen=True), now=True))
    for number in range(20):
        found.add(UnitId(f"u{number}"), StrategyName.FREEZER)
    return found


@pytest.fixture
def reclaiming(
    tmp_path: Path, host: Counting, frozen: Resting, monkeypatch: pytest.MonkeyPatch
) -> standby.Standby:
    monkeypatch.setattr(standby, "find_hierarchy", lambda _: Hierarchy(1, "memory", tmp_path, "/"))
    monkeypatch.setattr(standby, "container_cgroup", lambda *_: tmp_path)
    return standby.Standby(
        {},
        cast("Any", None),
        resting=frozen,
        freezers=cast("Any", None),
        tasks=cast("ContainerdTasks", RunningTasks()),
        host=host,
    )


async def test_reclaims_leave_threads_for_lists(
    host: Counting, frozen: Resting, reclaiming: standby.Standby
) -> None:
    async with asyncio.TaskGroup() as group:
        for unit_id in frozen:
            group.create_task(reclaiming.hibernate(unit_id), name=f"hibernate {unit_id}")
        await let_others_work()
        host.gate.set()
    assert host.most == standby.RECLAIMS
    assert all(frozen.is_hibernated(unit_id) for unit_id in frozen)


async def test_a_reclaim_whose_caller_gave_up_counts_until_its_thread_returns(
    host: Counting, frozen: Resting, reclaiming: standby.Standby
) -> None:
    given_up, later = tuple(frozen)[: standby.RECLAIMS], tuple(frozen)[-1]
    tasks = [asyncio.create_task(reclaiming.hibernate(one), name=f"hibernate {one}") for one in given_up]
    await until(lambda: host.running == standby.RECLAIMS)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    last = asyncio.create_task(reclaiming.hibernate(later), name=f"hibernate {later}")
    await let_others_work()
    assert host.begun == standby.RECLAIMS
    host.gate.set()
    await last
    assert [frozen.is_hibernated(one) for one in (*given_up, later)] == [False] * len(given_up) + [True]
