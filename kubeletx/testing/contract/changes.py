"""Contract of runtimes: events, usage figures and resizing."""

from __future__ import annotations

import asyncio

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

from .base import PATIENCE_SECONDS, ContractBase, Pod, eventually, supported


class ChangeContract(ContractBase):
    """Tests of events, usage figures and resizing."""

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
