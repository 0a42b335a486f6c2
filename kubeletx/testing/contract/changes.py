"""Contract of runtimes: events and resizing."""

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
    UnitSpec,
    UnitState,
)

from .base import (
    PATIENCE_SECONDS,
    ContractBase,
    NewRuntime,
    Pod,
    eventually,
    supported,
    within,
)
from .failures import about


class ChangeContract(ContractBase):
    """Tests of a runtime's events, and of resizing units."""

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
