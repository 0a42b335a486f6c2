"""Which containers count as frozen while calls and other programs change them."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from kubeletx_quark import standby
from kubeletx_quark.config import StrategyName
from kubeletx_quark.freezers import FreezerReading, Freezers
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
    TimedOut,
    Unavailable,
    UnitId,
    UnitState,
    UnitSummary,
    names,
)
from kubeletx.cri import ContainerdTask, ContainerdTasks, CriClient, TaskState
from kubeletx.cri.stubs import containerd_events_pb2 as ev
from kubeletx.testing import FakeClock, FakeHost, endpoint, sandbox_spec, unit_spec
from kubeletx_testing.cri_server import FakeCriServer
from kubeletx_testing.waiting import let_others_work

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

    def __init__(self, hint: FreezerReading, now: bool, meanwhile: Callable[[], None] = lambda: None) -> None:
        self.hint, self.now, self.meanwhile = hint, now, meanwhile

    async def look(self, unit_ids: Iterable[UnitId], *, is_whole: bool) -> dict[UnitId, FreezerReading]:
        readings = dict.fromkeys(unit_ids, self.hint)
        self.meanwhile()
        return readings

    def is_frozen(self, unit_id: UnitId) -> bool | None:
        return self.now

    def add(self, unit_id: UnitId, pid: int) -> None:
        return None


def resting(tmp_path: Path, freezers: StubFreezers, tasks: Any = None) -> Resting:
    host, tasks = FakeHost(tmp_path), tasks or ContainerdTasks(CriClient("unix:///nowhere.sock"))
    return Resting(
        freezers=cast("Freezers", freezers),
        pause=PauseStrategy(tasks),
        by_signal=SignalStrategy(tasks, host, 19, 18),
        tasks=tasks,
        host=host,
        labels=LABELS,
    )


async def test_a_freeze_that_ends_during_a_look_stays_known(tmp_path: Path) -> None:
    freezers = StubFreezers(FreezerReading(is_frozen=False), now=True)
    rest = resting(tmp_path, freezers)
    freezers.meanwhile = lambda: rest.add(UNIT, StrategyName.FREEZER)
    await rest.look([summary()], is_whole=True)
    assert rest.state_of(summary()) is UnitState.PAUSED


async def test_a_thaw_that_ends_during_a_look_stays_known(tmp_path: Path) -> None:
    freezers = StubFreezers(FreezerReading(is_frozen=True, killed=(7,)), now=False)
    rest = resting(tmp_path, freezers)
    rest.add(UNIT, StrategyName.FREEZER)
    freezers.meanwhile = lambda: rest.drop(UNIT)
    assert await rest.look([summary()], is_whole=True) == {}
    assert rest.state_of(summary()) is UnitState.RUNNING


async def test_a_container_with_a_call_in_flight_is_left_out(tmp_path: Path) -> None:
    freezers = StubFreezers(FreezerReading(is_frozen=False), now=False)
    rest = resting(tmp_path, freezers)
    rest.add(UNIT, StrategyName.FREEZER)
    with rest.call(UNIT):
        await rest.look([summary()], is_whole=True)
        assert rest.state_of(summary()) is UnitState.PAUSED
    await rest.look([summary()], is_whole=True)
    assert rest.state_of(summary()) is UnitState.RUNNING


async def test_killed_processes_are_reported_of_frozen_containers_without_a_call(tmp_path: Path) -> None:
    rest = resting(tmp_path, StubFreezers(FreezerReading(is_frozen=True, killed=(7,)), now=True))
    rest.add(UNIT, StrategyName.PAUSE)
    with rest.call(UNIT):
        assert await rest.look([summary()], is_whole=False) == {}
    assert await rest.look([summary()], is_whole=False) == {UNIT: (7,)}


async def test_an_ended_container_is_dropped(tmp_path: Path) -> None:
    rest = resting(tmp_path, StubFreezers(FreezerReading(is_frozen=True), now=True))
    rest.add(UNIT, StrategyName.FREEZER)
    rest.add_hibernated(UNIT)
    ended = summary(UnitState.EXITED)
    await rest.look([ended], is_whole=True)
    assert (rest.state_of(ended), UNIT in rest, rest.is_hibernated(UNIT)) == (
        UnitState.EXITED,
        False,
        False,
    )


async def started(runtime: Runtime) -> UnitId:
    sandbox = sandbox_spec("one")
    sandbox_id = await runtime.create_sandbox(sandbox)
    unit_id = await runtime.create_unit(sandbox_id, unit_spec("main"), sandbox)
    await runtime.start_unit(unit_id)
    return unit_id


async def listed(runtime: Runtime) -> UnitState:
    (unit,) = await runtime.list_units({names.POD_UID: "uid-one"})
    return unit.state


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
        super().__init__(FreezerReading(is_frozen=True, killed=(pid,)), now=True)
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


def letting_end(strategy: Thawing, rest: Resting, host: Host, tasks: Any = None) -> standby.Standby:
    return standby.Standby(
        {StrategyName.FREEZER: cast("Any", strategy)},
        cast("Any", None),
        resting=rest,
        tasks=cast("ContainerdTasks", tasks or RunningTasks()),
        host=host,
    )


class HungTasks:
    """Tasks whose shim does not answer once the first `answers` calls have got one. `killed`: signals."""

    def __init__(self, answers: int = 0) -> None:
        self.answers = answers
        self.killed: list[int] = []

    async def get(self, task_id: str) -> ContainerdTask:
        self.answers -= 1
        if self.answers < 0:
            raise TimedOut("no answer")
        return await RunningTasks().get(task_id)

    async def kill(self, task_id: str, number: int) -> None:
        self.killed.append(number)


async def test_a_stop_thaws_by_the_freezer_although_the_shim_does_not_answer(tmp_path: Path) -> None:
    strategy, tasks = Thawing(), HungTasks()
    rest = resting(tmp_path, StubFreezers(FreezerReading(is_frozen=True), now=True), tasks)
    rest.add(UNIT, StrategyName.FREEZER)
    await letting_end(strategy, rest, FakeHost(tmp_path), tasks).wake(UNIT)
    assert (strategy.thawed, UNIT in rest) == ([UNIT], False)


async def test_a_freeze_by_signal_does_not_depend_on_the_shim_once_the_signal_was_sent(
    tmp_path: Path,
) -> None:
    tasks, proc = HungTasks(answers=1), write_proc(tmp_path, "cpuacct", UNIT)
    host = FakeHost(tmp_path, clock=FakeClock(auto_advance=True))
    strategy = SignalStrategy(cast("ContainerdTasks", tasks), host, 19, 18, proc)
    await strategy.freeze(UNIT)
    assert (tasks.killed, await strategy.is_frozen(UNIT)) == ([19], True)


async def test_containers_of_other_agents_are_neither_thawed_nor_frozen_by_themselves(
    tmp_path: Path,
) -> None:
    freezers, strategy = KilledInside(NO_PROCESS), Thawing()
    rest = resting(tmp_path, freezers, RunningTasks())
    calls = letting_end(strategy, rest, FakeHost(tmp_path))
    others = [
        labelled("of another agent", **(LABELS | {names.AGENT_ID: "another"})),
        labelled("of another runtime", **(LABELS | {names.RUNTIME_NAME: "another"})),
        labelled("of no agent"),
    ]
    listed = [summary(), *others]
    for unit in listed:
        rest.add(unit.id, StrategyName.FREEZER)
    await calls.look(listed, is_whole=True)
    assert strategy.thawed == [UNIT]
    assert all(rest.state_of(unit) is UnitState.PAUSED for unit in others)
    freezers.now = False
    await rest.open(listed)
    assert freezers.finished == [UNIT]
    with rest.call(UNIT):
        await rest.open(listed)
    assert freezers.finished == [UNIT]


async def test_processes_that_do_not_end_delay_a_list_only_once(tmp_path: Path) -> None:
    clock = FakeClock(auto_advance=True)
    rest, strategy = resting(tmp_path, KilledInside(os.getpid())), Thawing()
    calls = letting_end(strategy, rest, FakeHost(tmp_path, clock=clock))
    listed = [labelled(f"u{number}", **LABELS) for number in range(5)]
    for unit in listed:
        rest.add(unit.id, StrategyName.FREEZER)
    began = clock.monotonic()
    assert await calls.look(listed, is_whole=True) == []
    assert strategy.thawed == [unit.id for unit in listed]
    assert clock.monotonic() - began == pytest.approx(ENDED_SECONDS, abs=0.1)


class WithoutThreads(FakeHost):
    """A host whose threads are all in use."""

    async def blocking(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        raise Unavailable("no thread for this call")


async def test_a_look_at_one_pod_needs_no_thread(tmp_path: Path) -> None:
    proc = write_proc(tmp_path, "freezer", UNIT)
    (tmp_path / UNIT / "freezer.state").write_text("FROZEN")
    (tmp_path / UNIT / "cgroup.procs").write_text("")
    tasks = ContainerdTasks(CriClient("unix:///nowhere.sock"))
    freezers = Freezers(tasks, WithoutThreads(tmp_path), proc)
    freezers.open()
    assert freezers.add(UNIT, 1)
    assert await freezers.look([UNIT], is_whole=False) == {UNIT: FreezerReading(is_frozen=True)}
    with pytest.raises(Unavailable):
        await freezers.look([UNIT], is_whole=True)


def write_proc(tmp_path: Path, controller: str, *units: str) -> Path:
    """Make cgroups of units in a mounted hierarchy, and return a /proc whose process 1 is in all of them."""
    proc, cgroup = tmp_path / "proc", "/".join(units)
    (tmp_path / cgroup).mkdir(parents=True)
    for name, text in (
        ("self/mountinfo", f"31 30 0:34 / {tmp_path} rw - cgroup cgroup rw,{controller}\n"),
        ("1/cgroup", f"6:{controller}:/{cgroup}\n"),
    ):
        (proc / name).parent.mkdir(parents=True)
        (proc / name).write_text(text)
    return proc


def standby_of(
    rest: Resting, stub: StubFreezers, host: FakeHost, tmp_path: Path, *units: UnitId
) -> standby.Standby:
    """A `Standby` of units that are frozen by the freezer."""

    class Strategy:
        async def freeze(self, unit_id: UnitId) -> None:
            stub.now = True

        async def thaw(self, unit_id: UnitId) -> None:
            stub.now = False

    async def choose(unit_id: UnitId) -> StrategyName:
        return StrategyName.FREEZER

    return standby.Standby(
        {StrategyName.FREEZER: cast("Any", Strategy())},
        choose,
        resting=rest,
        tasks=cast("ContainerdTasks", RunningTasks()),
        host=host,
        proc=write_proc(tmp_path, "memory", *units),
    )


async def test_reclaims_leave_threads_for_lists(tmp_path: Path) -> None:
    running, most, gate = 0, 0, asyncio.Event()

    class Counting(FakeHost):
        async def blocking(self, function: Any, *args: Any, **kwargs: Any) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await gate.wait()
            running -= 1
            return Reclaimed(before_bytes=2, after_bytes=1)

    stub = StubFreezers(FreezerReading(is_frozen=True), now=True)
    rest = resting(tmp_path, stub)
    units = [UnitId(f"u{number}") for number in range(20)]
    calls = standby_of(rest, stub, Counting(tmp_path), tmp_path, *units)
    for unit_id in units:
        rest.add(unit_id, StrategyName.FREEZER)
    async with asyncio.TaskGroup() as group:
        for unit_id in units:
            group.create_task(calls.hibernate(unit_id), name=f"hibernate {unit_id}")
        await let_others_work()
        gate.set()
    assert most == standby.RECLAIMS
    assert all(rest.is_hibernated(unit_id) for unit_id in units)


class SlowReclaims(FakeHost):
    """A host on which reclaims end once `gate` is set. `stops`: what stops each of them."""

    def __init__(self, state_directory: Path) -> None:
        super().__init__(state_directory)
        self.stops: list[threading.Event] = []
        self.gate = asyncio.Event()

    async def blocking(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        self.stops.append(args[-1])
        await self.gate.wait()
        return Reclaimed(before_bytes=2, after_bytes=1)


@pytest.mark.parametrize("was_frozen", [False, True])
async def test_a_cancelled_hibernation_is_undone_at_once_and_its_thread_keeps_its_slot(
    tmp_path: Path, was_frozen: bool
) -> None:
    host = SlowReclaims(tmp_path)
    stops = host.stops
    stub = StubFreezers(FreezerReading(is_frozen=was_frozen), now=was_frozen)
    rest = resting(tmp_path, stub)
    others = [UnitId(f"other{number}") for number in range(standby.RECLAIMS)]
    calls = standby_of(rest, stub, host, tmp_path, UNIT, *others)
    if was_frozen:
        rest.add(UNIT, StrategyName.FREEZER)
    first = asyncio.create_task(calls.hibernate(UNIT), name="first")
    await let_others_work()
    assert [stop.is_set() for stop in stops] == [False]
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert (stub.now, UNIT in rest, rest.is_hibernated(UNIT)) == (was_frozen, was_frozen, False)
    assert [stop.is_set() for stop in stops] == [True]
    second = asyncio.create_task(calls.hibernate(UNIT), name="second")
    await let_others_work()
    assert len(stops) == 1, "the thread of the first one will restore the limit of swap"
    waiting = [asyncio.create_task(calls.hibernate(one), name=one) for one in others]
    await let_others_work()
    assert len(stops) == standby.RECLAIMS, "the thread of the first one still writes"
    host.gate.set()
    await asyncio.gather(second, *waiting)
    assert (len(stops), rest.is_hibernated(UNIT)) == (2 + len(others), True)


async def test_a_hibernation_that_is_cancelled_before_its_reclaim_begins_writes_nothing(
    tmp_path: Path,
) -> None:
    stub = StubFreezers(FreezerReading(is_frozen=False), now=False)
    rest = resting(tmp_path, stub)
    others = [UnitId(f"other{number}") for number in range(standby.RECLAIMS)]
    host = SlowReclaims(tmp_path)
    calls = standby_of(rest, stub, host, tmp_path, UNIT, *others)
    busy = [asyncio.create_task(calls.hibernate(one), name=one) for one in others]
    await let_others_work()
    task = asyncio.create_task(calls.hibernate(UNIT), name="waits for a slot")
    await let_others_work()
    assert (stub.now, task.done()) == (True, False)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (stub.now, UNIT in rest) == (False, False)
    host.gate.set()
    await asyncio.gather(*busy)
    assert len(host.stops) == standby.RECLAIMS


async def test_a_pause_that_is_cancelled_is_undone_although_containerd_carried_it_out() -> None:
    class Tasks:
        state = TaskState.RUNNING

        async def pause(self, task_id: str) -> None:
            self.state = TaskState.PAUSED
            await asyncio.Event().wait()

        async def get(self, task_id: str) -> ContainerdTask:
            return ContainerdTask(id=task_id, state=self.state, pid=1)

        async def resume(self, task_id: str) -> None:
            self.state = TaskState.RUNNING

    tasks = Tasks()
    strategy = PauseStrategy(cast("ContainerdTasks", tasks))
    freeze = asyncio.create_task(strategy.freeze(UNIT), name="freeze")
    await let_others_work()
    assert (await tasks.get(UNIT)).state is TaskState.PAUSED
    freeze.cancel()
    with pytest.raises(asyncio.CancelledError):
        await freeze
    assert (await tasks.get(UNIT)).state is TaskState.RUNNING
