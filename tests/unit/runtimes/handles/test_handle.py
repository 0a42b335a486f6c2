"""`RuntimeHandle`: one failure domain, last-known snapshots, and which events are news."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from kubeletx.api import (
    Conflict,
    EventKind,
    Internal,
    NotFound,
    PodUid,
    RuntimeEvent,
    SandboxState,
    SupportsEvents,
    SupportsExec,
    SupportsImages,
    TimedOut,
    Unavailable,
    UnitId,
    UnitState,
    names,
)
from kubeletx.runtimes.handles.limits import Limits
from kubeletx.testing import FakeClock, FakeRuntime
from tests.unit.runtimes.conftest import FAST, PATIENT, Bench, sandbox_of

A = PodUid("uid-a")


async def test_a_runtime_that_is_there_becomes_ready_and_is_listed(bench: Bench) -> None:
    handle = bench.handle
    assert handle.state.ready
    assert handle.state.network_ready
    assert handle.is_listed
    assert handle.has_event_stream
    assert handle.last_version is not None
    assert handle.last_version.name == "fake"
    assert handle.capability(SupportsImages) is bench.runtime
    assert bench.sink.reasons("one") == [names.Event.RUNTIME_READY]


async def test_a_runtime_that_is_not_there_yet_joins_by_itself(clock: FakeClock) -> None:
    bench = Bench(FakeRuntime("one", clock=clock), clock)
    bench.runtime.backend.kill()
    async with bench.running():
        await bench.clock.run_for(20)
        assert not bench.handle.state.reachable
        assert bench.sink.reasons() == []
        with pytest.raises(Unavailable, match="runtime one does not answer"):
            await bench.handle.version()
        assert bench.handle.capability(SupportsExec) is None
        bench.runtime.backend.revive()
        await bench.until(lambda: bench.handle.is_listed)
    assert bench.sink.reasons() == [names.Event.RUNTIME_READY]


async def test_a_look_shows_sandbox_address_and_unit_status(bench: Bench) -> None:
    sandbox_id, unit_id = await bench.start_pod()
    snapshot = await bench.handle.look(A)
    assert [s.id for s in snapshot.sandboxes] == [sandbox_id]
    assert snapshot.sandbox_status is not None
    assert snapshot.sandbox_status.ips
    status = snapshot.status_of(unit_id)
    assert status is not None
    assert status.summary.state is UnitState.RUNNING
    assert bench.handle.snapshot(A) is snapshot


async def test_a_second_look_asks_only_for_what_changed(bench: Bench) -> None:
    _, unit_id = await bench.start_pod()
    await bench.handle.look(A)
    bench.runtime.counts.clear()
    await bench.handle.look(A)
    assert bench.runtime.counts == {"list_sandboxes": 1, "list_units": 1}
    bench.runtime.backend.exit_unit(unit_id, 3)
    snapshot = await bench.handle.look(A)
    assert bench.runtime.counts["unit_status"] == 1
    status = snapshot.status_of(unit_id)
    assert status is not None
    assert status.exit_code == 3


async def test_a_look_at_nothing_is_an_empty_snapshot_and_nothing_is_kept(bench: Bench) -> None:
    snapshot = await bench.handle.look(A)
    assert snapshot.is_empty
    assert snapshot.looked_at > 0
    assert bench.handle.snapshot(A) is None


async def test_another_agents_pods_are_never_ours(bench: Bench) -> None:
    foreign = sandbox_of("one", "b")
    foreign = type(foreign)(uid=foreign.uid, name="b", namespace="default", labels={names.POD_UID: "uid-b"})
    bench.runtime.backend.add_sandbox(foreign)
    await bench.handle.relist()
    await bench.clock.run_for(1)
    assert dict(bench.handle.pods()) == {}
    assert bench.listener.pods == []


async def test_subscribers_get_foreign_events_and_echoes_of_our_own_calls(bench: Bench) -> None:
    with bench.handle.subscribe() as events:
        assert (await anext(events)).kind is EventKind.RESYNC
        _, unit_id = await bench.start_pod("a", note=True)
        foreign = sandbox_of("one", "b")
        foreign = type(foreign)(
            uid=foreign.uid, name="b", namespace="default", labels={names.POD_UID: "uid-b"}
        )
        other_id = bench.runtime.backend.add_sandbox(foreign)
        await bench.clock.run_for(1)
        seen: set[str | None] = set()
        while not {unit_id, other_id} <= seen:
            async with asyncio.timeout(10):
                event = await anext(events)
            seen |= {event.unit_id, event.sandbox_id}
    assert bench.listener.pods == []


async def test_our_own_actions_are_not_news(bench: Bench) -> None:
    await bench.start_pod("a", note=True)
    await bench.start_pod("b", note=True)
    await bench.clock.run_for(1)
    assert bench.listener.pods == []
    assert len(bench.handle.pods()) == 2


async def test_a_failed_call_does_not_hide_what_happened_meanwhile(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    bench.runtime.script("stop_unit", hang=True, after_effect=True, times=1)
    with pytest.raises(TimedOut):
        await bench.handle.stop_unit(unit_id, 0)
    assert [event.kind for _, _, event in bench.listener.pods if event] == [EventKind.STOPPED]


async def test_the_end_of_a_pod_is_not_news_either(bench: Bench) -> None:
    sandbox_id, unit_id = await bench.start_pod(note=True)
    await bench.handle.stop_unit(unit_id, 0)
    bench.handle.note_unit(await bench.handle.unit_status(unit_id))
    await bench.handle.stop_sandbox(sandbox_id)
    await bench.handle.remove_sandbox(sandbox_id)
    await bench.clock.run_for(1)
    assert bench.listener.pods == []
    assert bench.handle.snapshot(A) is None


async def test_what_the_runtime_does_by_itself_is_news_once(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    bench.runtime.backend.exit_unit(unit_id, 1)
    await bench.clock.run_for(1)
    assert [(name, uid, e and e.kind) for name, uid, e in bench.listener.pods] == [
        ("one", A, EventKind.STOPPED)
    ]
    event = bench.listener.pods[0][2]
    assert event is not None
    assert not bench.handle.shows(A, event)
    await bench.handle.look(A)
    assert bench.handle.shows(A, event)
    bench.listener.pods.clear()
    bench.runtime.backend.emit(EventKind.STOPPED, A, None, unit_id)
    await bench.clock.run_for(1)
    assert bench.listener.pods == []


async def test_an_event_that_comes_before_its_create_returns_is_replayed(bench: Bench) -> None:
    sandbox_id, _ = await bench.start_pod(note=True)
    spec = sandbox_of("one", "a")
    stuck = bench.runtime.script("create_unit", hang=True, after_effect=True)
    from tests.unit.runtimes.conftest import unit_of

    task = asyncio.create_task(bench.handle.create_unit(sandbox_id, unit_of("one", "a", "late"), spec))
    await bench.clock.settle()
    unit_id = bench.runtime.backend.find_unit("late")
    bench.runtime.backend.start_unit(unit_id)
    bench.runtime.backend.exit_unit(unit_id, 7)
    await bench.clock.settle()
    assert bench.listener.pods == []
    stuck.release()
    assert await task == unit_id
    assert [e.kind for _, _, e in bench.listener.pods if e] == [EventKind.STARTED, EventKind.STOPPED]


async def test_an_oom_event_makes_the_next_look_ask_again(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    bench.runtime.backend.emit(EventKind.CHANGED, A, None, unit_id)
    await bench.clock.settle()
    bench.clock.advance(0.1)
    bench.runtime.counts.clear()
    await bench.handle.look(A)
    assert bench.runtime.counts["unit_status"] == 1
    await bench.handle.look(A)
    assert bench.runtime.counts["unit_status"] == 1


@pytest.mark.parametrize(
    "method", ["stop_unit", "remove_unit", "start_unit", "freeze", "stop_sandbox", "remove_sandbox"]
)
async def test_not_found_about_something_else_is_a_conflict(bench: Bench, method: str) -> None:
    sandbox_id, unit_id = await bench.start_pod(note=True)
    handle = bench.handle
    bench.runtime.script(method, error=NotFound("disk x is not there"))

    async def freeze() -> None:
        raise NotFound("disk x is not there")

    calls = {
        "stop_unit": lambda: handle.stop_unit(unit_id, 0),
        "remove_unit": lambda: handle.remove_unit(unit_id),
        "start_unit": lambda: handle.start_unit(unit_id),
        "freeze": lambda: handle.change("freeze", freeze, unit_id=unit_id),
        "stop_sandbox": lambda: handle.stop_sandbox(sandbox_id),
        "remove_sandbox": lambda: handle.remove_sandbox(sandbox_id),
    }
    with pytest.raises(Conflict, match="disk x is not there; the runtime still has the object itself"):
        await calls[method]()
    assert [one.id for one in (await handle.look(A)).units] == [unit_id]
    bench.runtime.backend.vanish_unit(unit_id)
    bench.runtime.backend.sandboxes.clear()
    with pytest.raises(NotFound):
        await calls[method]()


async def test_a_listed_unit_without_a_status_is_kept_until_a_list_lacks_it(bench: Bench) -> None:
    _, unit_id = await bench.start_pod()
    bench.runtime.script("unit_status", error=NotFound("its image is not there"))
    assert [one.id for one in (await bench.handle.look(A)).units] == [unit_id]
    bench.clock.advance(1)
    bench.runtime.backend.vanish_unit(unit_id)
    assert (await bench.handle.look(A)).units == ()


async def test_after_a_loss_the_runtime_is_listed_again_at_once_and_more_often(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    await bench.clock.run_for(10)
    bench.runtime.counts.clear()
    await bench.clock.run_for(20)
    assert bench.runtime.counts["list_units"] == 0
    bench.runtime.backend.vanish_unit(unit_id)
    await bench.handle.look(A)
    await bench.clock.run_for(20)
    assert 4 <= bench.runtime.counts["list_units"] <= 8


async def test_a_note_survives_a_look_that_began_before_it(bench: Bench) -> None:
    stuck = bench.runtime.script("list_units", hang=True, times=1, after_effect=True)
    look = asyncio.create_task(bench.handle.look(A))
    await bench.clock.settle()
    bench.clock.advance(0.001)
    _, unit_id = await bench.start_pod(note=True)
    stuck.release()
    snapshot = await look
    assert [u.id for u in snapshot.units] == [unit_id]
    bench.clock.advance(0.001)
    bench.runtime.backend.vanish_unit(unit_id)
    assert (await bench.handle.look(A)).units == ()


async def test_what_we_removed_does_not_come_back_with_an_older_look(bench: Bench) -> None:
    sandbox_id, unit_id = await bench.start_pod(note=True)
    stuck = bench.runtime.script("list_units", hang=True, times=1, after_effect=True)
    look = asyncio.create_task(bench.handle.look(A))
    await bench.clock.settle()
    bench.clock.advance(0.001)
    await bench.handle.stop_unit(unit_id, 0)
    await bench.handle.remove_unit(unit_id)
    stuck.release()
    snapshot = await look
    assert snapshot.units == ()
    await bench.handle.remove_sandbox(sandbox_id)
    assert bench.handle.snapshot(A) is None


async def test_an_older_look_never_replaces_a_newer_one(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    stuck = bench.runtime.script("list_units", hang=True, times=1, after_effect=True)
    old = asyncio.create_task(bench.handle.look(A))
    await bench.clock.settle()
    bench.clock.advance(1)
    bench.runtime.backend.exit_unit(unit_id, 1)
    new = await bench.handle.look(A)
    stuck.release()
    assert await old is new
    assert new.units[0].state is UnitState.EXITED


async def test_a_failed_look_or_list_changes_nothing(bench: Bench) -> None:
    await bench.start_pod(note=True)
    before = dict(bench.handle.pods())
    bench.runtime.script("list_units", error=Unavailable("no answer"), times=2)
    with pytest.raises(Unavailable):
        await bench.handle.look(A)
    with pytest.raises(Unavailable):
        await bench.handle.relist()
    assert dict(bench.handle.pods()) == before


async def test_a_list_reports_the_pods_that_changed_and_only_those(bench: Bench) -> None:
    _, first = await bench.start_pod("a", note=True)
    await bench.start_pod("b", note=True)
    bench.runtime.backend.units[first].summary = type(bench.runtime.backend.units[first].summary)(
        **{
            **{
                f: getattr(bench.runtime.backend.units[first].summary, f)
                for f in ("id", "sandbox_id", "uid", "name")
            },
            "attempt": 0,
            "created_at_ns": 1,
            "labels": bench.runtime.backend.units[first].summary.labels,
            "state": UnitState.EXITED,
        }
    )
    bench.clock.advance(1)
    await bench.handle.relist()
    assert bench.listener.pods == [("one", A, None)]
    snapshot = bench.handle.snapshot(A)
    assert snapshot is not None
    assert snapshot.units[0].state is UnitState.EXITED
    assert snapshot.status_of(first) is None
    bench.clock.advance(1)
    await bench.handle.relist()
    assert len(bench.listener.pods) == 1


async def test_ten_thousand_events_are_drained_and_a_resync_lists(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    for number in range(10_000):
        bench.runtime.backend.emit(EventKind.STARTED, PodUid("foreign"), None, UnitId(f"x{number}"))
    bench.runtime.counts.clear()
    bench.runtime.backend.emit(EventKind.RESYNC, None)
    bench.runtime.backend.emit(EventKind.STOPPED, A, None, unit_id)
    await bench.until(lambda: bench.listener.pods)
    await bench.until(lambda: bench.runtime.counts["list_units"])
    assert len(bench.listener.pods) == 1


async def test_a_hung_call_times_out_and_its_place_is_free_again(bench: Bench) -> None:
    stuck = bench.runtime.script("create_sandbox", hang=True, times=1)
    with pytest.raises(TimedOut, match="create_sandbox did not return within"):
        await bench.handle.create_sandbox(sandbox_of("one", "a"))
    await bench.handle.create_sandbox(sandbox_of("one", "a"))
    stuck.release()
    assert bench.handle.counts["create_sandbox"].calls == 2
    assert bench.handle.counts["create_sandbox"].errors == 1
    assert sum(bench.handle.counts["create_sandbox"].durations.counts) == 2


async def test_a_look_does_not_wait_behind_slow_creates(clock: FakeClock) -> None:
    limits = Limits(changing=2, request_seconds=0.3, probe_seconds=0.2)
    async with Bench(FakeRuntime("one", clock=clock), clock, limits).running() as bench:
        await bench.until(lambda: bench.handle.is_listed)
        bench.runtime.script("create_unit", hang=True)
        sandbox_id = await bench.handle.create_sandbox(sandbox_of("one", "a"))
        from tests.unit.runtimes.conftest import unit_of

        creates = [
            asyncio.create_task(
                bench.handle.create_unit(sandbox_id, unit_of("one", "a", f"u{i}"), sandbox_of("one", "a"))
            )
            for i in range(5)
        ]
        await bench.clock.settle()
        assert bench.runtime.counts["create_unit"] == 2
        snapshot = await bench.handle.look(A)
        assert snapshot.sandboxes[0].state is SandboxState.READY
        results = await asyncio.gather(*creates, return_exceptions=True)
        kinds = sorted(type(r).__name__ for r in results)
        assert kinds.count("TimedOut") >= 2
        assert set(kinds) <= {"TimedOut", "Unavailable"}


async def test_a_thaw_does_not_wait_for_slow_creates_nor_for_reads_after_other_thaws(
    clock: FakeClock,
) -> None:
    limits = Limits(changing=1, switching=1, request_seconds=0.3, probe_seconds=0.2)
    async with Bench(FakeRuntime("one", clock=clock), clock, limits).running() as bench:
        await bench.until(lambda: bench.handle.is_listed)
        bench.runtime.script("create_sandbox", hang=True)
        order: list[str] = []

        async def thaw(number: int) -> None:
            order.append(f"thaw {number}")
            await asyncio.sleep(0)

        async def thaw_and_read(number: int) -> None:
            unit_id = UnitId(f"u{number}")
            await bench.handle.change("thaw", lambda: thaw(number), changes=unit_id, is_switch=True)
            with pytest.raises(NotFound):
                await bench.handle.unit_status(unit_id, after_switch=True)
            order.append(f"read {number}")

        create = asyncio.create_task(bench.handle.create_sandbox(sandbox_of("one", "a")))
        await bench.clock.settle()
        await asyncio.gather(*(thaw_and_read(number) for number in range(3)))
        assert order == ["thaw 0", "thaw 1", "thaw 2", "read 0", "read 1", "read 2"]
        assert not create.done()
        with pytest.raises(TimedOut):
            await create


async def test_foreign_exceptions_become_ours(clock: FakeClock) -> None:
    async def broken(_unit: UnitId) -> None:
        raise ValueError("oops")

    async def reset(_unit: UnitId) -> None:
        raise ConnectionResetError("peer")

    async def closed(_unit: UnitId) -> None:
        raise asyncio.CancelledError

    async with Bench(FakeRuntime("one", clock=clock), clock, PATIENT).running() as bench:
        await bench.until(lambda: bench.handle.is_listed)
        for function, error in ((broken, Internal), (reset, Unavailable), (closed, Unavailable)):
            bench.runtime.start_unit = function  # type: ignore[method-assign, assignment]
            with pytest.raises(error, match="runtime one: start_unit"):
                await bench.handle.start_unit(UnitId("x"))


async def test_a_cancelled_caller_sees_its_cancellation(bench: Bench) -> None:
    bench.runtime.script("version", hang=True)
    task = asyncio.create_task(bench.handle.version())
    await bench.clock.settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_outage_changes_readiness_once_and_keeps_what_was_known(bench: Bench) -> None:
    await bench.start_pod(note=True)
    before = dict(bench.handle.pods())
    bench.runtime.backend.kill()
    await bench.until(lambda: not bench.handle.state.reachable)
    since = bench.handle.state.since
    await bench.clock.run_for(120)
    assert not bench.handle.state.ready
    assert bench.handle.state.since == since
    assert dict(bench.handle.pods()) == before
    with pytest.raises(Unavailable):
        await bench.handle.look(A)
    bench.runtime.backend.revive()
    await bench.until(lambda: bench.handle.state.ready and bench.handle.has_event_stream)
    assert dict(bench.handle.pods()) == before
    event = names.Event
    assert bench.sink.reasons() == [event.RUNTIME_READY, event.RUNTIME_NOT_READY, event.RUNTIME_READY]


async def test_what_happened_during_an_outage_is_found_afterwards(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    bench.runtime.backend.kill()
    await bench.until(lambda: not bench.handle.state.reachable)
    bench.runtime.backend.exit_unit(unit_id, 1)
    bench.runtime.backend.revive()
    await bench.until(lambda: bench.listener.pods)
    assert bench.listener.pods[0][1] == A


async def test_a_hanging_runtime_is_an_outage_too(bench: Bench) -> None:
    stuck = bench.runtime.script("*", hang=True)
    await bench.until(lambda: not bench.handle.state.reachable)
    stuck.stop()
    await bench.until(lambda: bench.handle.state.ready)


async def test_a_query_in_flight_ends_when_the_runtime_is_lost_and_a_change_does_not(
    clock: FakeClock,
) -> None:
    limits = Limits(query_seconds=600, request_seconds=600, probe_seconds=0.2)
    async with Bench(FakeRuntime("one", clock=clock), clock, limits).running() as bench:
        await bench.until(lambda: bench.handle.is_listed)
        stuck = bench.runtime.script("*", hang=True)
        query = asyncio.create_task(bench.handle.ask("exec", bench.runtime.version))
        change = asyncio.create_task(bench.handle.create_sandbox(sandbox_of("one", "a")))
        await bench.until(lambda: not bench.handle.state.reachable)
        with pytest.raises(Unavailable, match="runtime one"):
            await query
        assert not change.done()
        assert bench.handle.counts["exec"].errors == 1
        stuck.stop()
        change.cancel()
        await asyncio.gather(change, return_exceptions=True)


async def test_one_late_probe_changes_nothing(bench: Bench) -> None:
    bench.runtime.script("health", error=Unavailable("slow"), times=1)
    await bench.clock.run_for(30)
    assert bench.handle.state.ready
    assert bench.sink.reasons() == [names.Event.RUNTIME_READY]


async def test_a_runtime_that_says_it_is_not_ready_is_not_ready_at_once(bench: Bench) -> None:
    bench.runtime.network_ready = False
    await bench.until(lambda: not bench.handle.state.network_ready)
    assert bench.handle.state.ready
    assert bench.handle.state.reason == "NetworkNotReady"
    bench.runtime.runtime_ready = False
    await bench.until(lambda: not bench.handle.state.ready)
    assert bench.handle.state.reachable
    bench.runtime.runtime_ready = bench.runtime.network_ready = True
    await bench.until(lambda: bench.handle.state.ready)
    assert bench.handle.state.message == ""


async def test_a_broken_stream_is_resumed_and_nothing_between_is_lost(bench: Bench) -> None:
    _, unit_id = await bench.start_pod(note=True)
    bench.runtime.backend.kill()  # ends its streams
    bench.runtime.backend.revive()
    bench.runtime.backend.exit_unit(unit_id, 1)
    await bench.until(lambda: bench.listener.pods)
    await bench.until(lambda: bench.handle.has_event_stream)
    assert bench.handle.state.ready


async def test_without_events_the_runtime_is_listed_each_second(clock: FakeClock) -> None:
    runtime = FakeRuntime("one", clock=clock, without=[SupportsEvents])
    async with Bench(runtime, clock, FAST).running() as bench:
        await bench.until(lambda: bench.handle.is_listed)
        _, unit_id = await bench.start_pod(note=True)
        runtime.counts.clear()
        await bench.clock.run_for(10)
        assert 9 <= runtime.counts["list_units"] <= 11
        bench.runtime.backend.exit_unit(unit_id, 1)
        await bench.clock.run_for(1.5)
        assert bench.listener.pods == [("one", A, None)]


async def test_with_events_an_idle_runtime_is_hardly_asked(bench: Bench) -> None:
    bench.runtime.counts.clear()
    await bench.clock.run_for(300)
    assert bench.runtime.counts["list_units"] <= 6
    assert bench.runtime.counts["health"] <= 61


async def test_a_stream_that_breaks_at_once_does_not_spin(bench: Bench) -> None:
    def broken() -> object:
        bench.runtime.counts["events"] += 1
        raise Unavailable("no events today")

    bench.runtime.events = broken  # type: ignore[method-assign, assignment]
    bench.runtime.backend.kill()  # ends its streams
    bench.runtime.backend.revive()
    bench.runtime.counts.clear()
    await bench.clock.run_for(60)
    assert bench.runtime.counts["events"] <= 20
    assert bench.runtime.counts["list_units"] >= 30


async def test_a_cordon_is_shown_and_told(bench: Bench) -> None:
    bench.listener.runtimes.clear()
    bench.handle.cordon(True)
    assert bench.handle.state.cordoned
    assert bench.handle.state.ready
    assert bench.listener.runtimes == ["one"]


async def test_events_for_no_object_are_reported_for_known_pods_only(bench: Bench) -> None:
    await bench.start_pod(note=True)
    bench.runtime.backend.emit(EventKind.CHANGED, A)
    bench.runtime.backend.emit(EventKind.CHANGED, PodUid("other"))
    bench.runtime.backend.emit(EventKind.CHANGED, None)
    await bench.clock.run_for(0.1)
    assert bench.listener.pods == [("one", A, bench.listener.pods[0][2])]
    assert isinstance(bench.listener.pods[0][2], RuntimeEvent)


async def test_a_handle_that_is_run_again_opens_its_runtime_again(clock: FakeClock) -> None:
    bench = Bench(FakeRuntime("one", clock=clock), clock)
    for opened in (1, 2):
        async with bench.running():
            await bench.until(lambda: bench.handle.state.ready and bench.runtime.is_open)
            assert bench.handle.opened == opened
        assert not bench.runtime.is_open


async def test_how_long_an_outage_was_does_not_depend_on_the_wall_clock(bench: Bench) -> None:
    bench.runtime.backend.kill()
    await bench.until(lambda: not bench.handle.state.reachable)
    bench.clock.jump(-86_400)
    await bench.clock.run_for(5)
    with capture_logs() as lines:
        bench.runtime.backend.revive()
        await bench.until(lambda: bench.handle.state.reachable)
    (line,) = [line for line in lines if line["event"] == "Reached runtime"]
    assert 5 <= line["elapsed_seconds"] < 60
