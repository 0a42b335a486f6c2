"""Contract of runtimes: events, usage figures and resizing."""

from __future__ import annotations

import asyncio

import pytest

from kubeletx.api import (
    EventKind,
    Resources,
    Runtime,
    RuntimeEvent,
    SupportsEvents,
    SupportsResize,
    SupportsStats,
    UnitSpec,
    UnitState,
    UnitStats,
)

from .base import (
    PATIENCE_SECONDS,
    ContractBase,
    NewRuntime,
    Pod,
    eventually,
    needs_processes,
    running,
    supported,
    within,
)
from .failures import about

BUSY = "trap 'exit 0' TERM; while :; do :; done"


class ChangeContract(ContractBase):
    """Tests of a runtime's events, of CPU and memory usage, and of resizing units."""

    async def test_events_tell_of_a_pod_s_start_and_end(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stream = supported(runtime, SupportsEvents).events()
        seen: list[RuntimeEvent] = []
        subscribed = asyncio.Event()

        async def collect() -> None:
            subscribed.set()
            async for event in stream:
                if event.uid in (None, pod.spec.uid):
                    seen.append(event)

        async def look(kinds: set[EventKind]) -> bool | None:
            return True if kinds & {event.kind for event in seen} else None

        collector = asyncio.create_task(collect(), name="contract-events")
        try:
            await subscribed.wait()
            await asyncio.sleep(0.2)
            unit_id = await pod.start(unit_spec)
            await eventually(lambda: look({EventKind.STARTED, EventKind.CHANGED}), "an event of the start")
            seen.clear()
            await runtime.stop_unit(unit_id, 5)
            await eventually(lambda: look({EventKind.STOPPED, EventKind.CHANGED}), "an event of the end")
        finally:
            collector.cancel()
            await asyncio.wait([collector], timeout=PATIENCE_SECONDS)

    @about("events")
    async def test_events_of_a_unit_follow_after_a_restart_of_the_agent(
        self, new_runtime: NewRuntime, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        supported(runtime, SupportsEvents)
        if not runtime.traits().units_survive_agent:
            pytest.skip("units do not survive a restart of the agent")
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await runtime.close()
        again = await new_runtime.opened()
        ended = asyncio.Event()
        stream = supported(again, SupportsEvents).events()

        async def collect() -> None:
            async for event in stream:
                is_ours = event.uid in (None, pod.spec.uid) and event.unit_id in (None, unit_id)
                if is_ours and event.kind in (EventKind.STOPPED, EventKind.CHANGED):
                    ended.set()

        collector = asyncio.create_task(collect(), name="contract-events")
        try:
            await asyncio.sleep(0.2)
            await again.stop_unit(unit_id, 5)
            async with within(
                PATIENCE_SECONDS, "an event of the unit's end, after the runtime was opened again"
            ):
                await ended.wait()
        finally:
            collector.cancel()
            await asyncio.wait([collector], timeout=PATIENCE_SECONDS)
            await again.remove_sandbox(pod.id)
            await again.close()

    @about("events")
    async def test_a_unit_that_has_ended_sends_no_event_after_a_restart_of_the_agent(
        self, new_runtime: NewRuntime, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        supported(runtime, SupportsEvents)
        unit_id = await pod.start(unit_spec)
        await runtime.stop_unit(unit_id, 5)
        await runtime.close()
        again = await new_runtime.opened()
        stream = supported(again, SupportsEvents).events()
        kinds: list[EventKind] = []

        async def collect() -> None:
            async for event in stream:
                if event.unit_id == unit_id:
                    kinds.append(event.kind)

        collector = asyncio.create_task(collect(), name="contract-events")
        try:
            await asyncio.sleep(0.5)
            assert EventKind.STARTED not in kinds, (
                "the unit ended before the restart, and its start is reported"
            )
        finally:
            collector.cancel()
            await asyncio.wait([collector], timeout=PATIENCE_SECONDS)
            await again.remove_sandbox(pod.id)
            await again.close()

    @about("list_unit_stats")
    async def test_the_usage_of_a_busy_unit_grows(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stats = supported(runtime, SupportsStats)
        needs_processes(runtime)
        unit_id = await pod.start(running(unit_spec, "busy", BUSY))
        await pod.wait_state(unit_id, UnitState.RUNNING)

        async def look(after: UnitStats | None) -> UnitStats | None:
            for one in await stats.list_unit_stats({}):
                if one.id != unit_id or one.cpu_usage_core_ns is None:
                    continue
                if after is None:
                    return one
                if one.at_ns > after.at_ns and one.cpu_usage_core_ns > (after.cpu_usage_core_ns or 0):
                    return one
            return None

        first = await eventually(lambda: look(None), "CPU usage of the unit")
        await eventually(lambda: look(first), "larger figures of CPU and time than the first ones")

    async def test_a_running_unit_is_measured(self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec) -> None:
        stats = supported(runtime, SupportsStats)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)

        async def look() -> UnitStats | None:
            entries = [s for s in await stats.list_unit_stats(unit_spec.labels) if s.id == unit_id]
            return entries[0] if entries and entries[0].memory_working_set_bytes is not None else None

        entry = await eventually(look, "figures of the unit")
        assert (entry.uid, entry.name) == (pod.spec.uid, unit_spec.name)
        assert entry.at_ns > 0
        assert (entry.memory_working_set_bytes or 0) > 0

    async def test_figures_are_filtered_by_labels(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stats = supported(runtime, SupportsStats)
        unit_id = await pod.start(unit_spec)
        assert unit_id not in [s.id for s in await stats.list_unit_stats({"no": "such-label"})]

    async def test_new_limits_are_shown_once_granted(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        resize = supported(runtime, SupportsResize)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await resize.update_resources(unit_id, Resources(cpu_shares=512))

        async def look() -> bool | None:
            return True if (await runtime.unit_status(unit_id)).resources.get("cpu_shares") == 512 else None

        await eventually(look, "cpu_shares of 512 in the status")
