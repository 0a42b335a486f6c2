import asyncio
import random
import time

import pytest

from kubeletx.api import (
    CAPABILITIES,
    EventKind,
    LogMode,
    NotFound,
    Runtime,
    SupportsEvents,
    SupportsExec,
    SupportsLogReopen,
    SupportsLogStream,
    TimedOut,
    Traits,
    Unavailable,
    UnitId,
    UnitState,
    names,
)
from kubeletx.testing import Behaviour, FakeBackend, FakeClock, FakeRuntime, sandbox_spec, unit_spec


async def start(runtime: FakeRuntime, pod: str = "pod", unit: str = "main") -> UnitId:
    runtime.backend.add_image("busybox")
    sandbox = sandbox_spec(pod)
    sandbox_id = await runtime.create_sandbox(sandbox)
    unit_id = await runtime.create_unit(sandbox_id, unit_spec(unit), sandbox)
    await runtime.start_unit(unit_id)
    return unit_id


async def test_it_is_a_runtime_with_every_capability_that_its_log_mode_allows() -> None:
    runtime: Runtime = FakeRuntime()
    have = {protocol for protocol in CAPABILITIES if runtime.capability(protocol) is not None}
    assert SupportsLogReopen in have
    assert SupportsLogStream not in have
    stream = FakeRuntime(traits=Traits(log_mode=LogMode.STREAM), without=[SupportsExec])
    assert stream.capability(SupportsLogReopen) is None
    assert stream.capability(SupportsExec) is None
    assert stream.capability(SupportsLogStream) is stream


async def test_a_scripted_failure_happens_the_given_number_of_times() -> None:
    runtime = FakeRuntime()
    runtime.script("create_sandbox", error=Unavailable("no answer"), times=2)
    for _ in range(2):
        with pytest.raises(Unavailable):
            await runtime.create_sandbox(sandbox_spec())
    await runtime.create_sandbox(sandbox_spec())
    assert runtime.counts["create_sandbox"] == 3
    assert [call.key for call in runtime.calls("create_sandbox")] == ["uid-pod"] * 3


async def test_a_lost_answer_leaves_the_effect() -> None:
    runtime = FakeRuntime()
    runtime.script("create_sandbox", error=TimedOut("late"), after_effect=True, times=1)
    with pytest.raises(TimedOut):
        await runtime.create_sandbox(sandbox_spec())
    assert len(await runtime.list_sandboxes({})) == 1


async def test_a_hung_call_goes_on_when_it_is_released() -> None:
    clock = FakeClock()
    runtime = FakeRuntime(clock=clock)
    script = runtime.script("list_units", hang=True)
    call = asyncio.create_task(runtime.list_units({}))
    await clock.settle()
    assert not call.done()
    script.release()
    assert list(await call) == []


async def test_latency_passes_on_the_injected_clock() -> None:
    clock = FakeClock()
    runtime = FakeRuntime(clock=clock, latency={"create_sandbox": 2.0})
    call = asyncio.create_task(runtime.create_sandbox(sandbox_spec()))
    await clock.run_for(1.9)
    assert not call.done()
    await clock.run_for(0.2)
    assert call.done()


async def test_a_dead_backend_is_unavailable_and_keeps_what_ran() -> None:
    runtime = FakeRuntime()
    unit_id = await start(runtime)
    events = runtime.events()
    runtime.backend.kill()
    with pytest.raises(Unavailable):
        await runtime.list_units({})
    with pytest.raises(StopAsyncIteration):
        await anext(events)
    runtime.backend.revive()
    again = FakeRuntime(backend=runtime.backend)
    assert (await again.unit_status(unit_id)).summary.state is UnitState.RUNNING


async def test_a_unit_exits_by_its_behaviour_and_says_so() -> None:
    clock = FakeClock()
    backend = FakeBackend(clock=clock, behave=lambda _spec: Behaviour(runs_seconds=10, exit_code=3))
    runtime = FakeRuntime(backend=backend)
    capability = runtime.capability(SupportsEvents)
    assert capability is not None
    events = capability.events()
    unit_id = await start(runtime)
    await clock.run_for(10)
    status = await runtime.unit_status(unit_id)
    assert (status.summary.state, status.exit_code, status.reason) == (UnitState.EXITED, 3, "Error")
    kinds = [(await anext(events)).kind for _ in range(4)]
    assert kinds == [EventKind.STARTED, EventKind.CREATED, EventKind.STARTED, EventKind.STOPPED]


async def test_a_stubborn_unit_is_killed_after_the_grace_period() -> None:
    clock = FakeClock()
    backend = FakeBackend(clock=clock, behave=lambda _spec: Behaviour(ignores_stop=True))
    runtime = FakeRuntime(backend=backend)
    unit_id = await start(runtime)
    stop = asyncio.create_task(runtime.stop_unit(unit_id, 30))
    await clock.run_for(29)
    assert not stop.done()
    await clock.run_for(1)
    await stop
    assert (await runtime.unit_status(unit_id)).exit_code == 137


async def test_a_unit_without_its_image_cannot_be_created() -> None:
    runtime = FakeRuntime()
    sandbox_id = await runtime.create_sandbox(sandbox_spec())
    with pytest.raises(NotFound, match="busybox"):
        await runtime.create_unit(sandbox_id, unit_spec(), sandbox_spec())


async def test_lists_may_come_in_any_order() -> None:
    backend = FakeBackend(clock=FakeClock())
    plain, shuffled = FakeRuntime(backend=backend), FakeRuntime(backend=backend, shuffle=random.Random(1))
    for number in range(20):
        await start(plain, f"pod-{number}")
    first, second = await plain.list_units({}), await shuffled.list_units({})
    assert first != second
    assert sorted(u.id for u in first) == sorted(u.id for u in second)


async def test_a_pod_is_found_by_its_uid_until_it_is_removed() -> None:
    runtime = FakeRuntime()
    sandbox = sandbox_spec("one")
    unit_labels = dict(sandbox.labels)
    runtime.backend.add_image("busybox")
    sandbox_id = await runtime.create_sandbox(sandbox)
    unit_id = await runtime.create_unit(sandbox_id, unit_spec(labels=unit_labels), sandbox)
    match = {names.POD_UID: "uid-one"}
    assert [s.id for s in await runtime.list_sandboxes(match)] == [sandbox_id]
    assert [u.id for u in await runtime.list_units(match)] == [unit_id]
    await runtime.remove_sandbox(sandbox_id)
    assert list(await runtime.list_sandboxes(match)) == []
    assert list(await runtime.list_units(match)) == []


async def test_five_thousand_pods_are_not_an_effort() -> None:
    runtime = FakeRuntime()
    began = time.process_time()
    for number in range(5000):
        await start(runtime, f"pod-{number}")
    assert len(await runtime.list_units({})) == 5000
    assert time.process_time() - began < 10
