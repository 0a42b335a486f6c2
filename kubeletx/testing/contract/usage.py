"""Contract of runtimes: CPU and memory usage of units."""

from __future__ import annotations

import os

from kubeletx.api import Runtime, SupportsStats, UnitId, UnitSpec, UnitState, UnitStats

from .base import ContractBase, Pod, eventually, needs_processes, running, supported
from .failures import about

BUSY = "trap 'exit 0' TERM; while :; do :; done"
# The kernel counts CPU time, not real time, and sends SIGXCPU after one second of it.
SPEND = """
trap 'exit 0' TERM
for child in 1 2 3 4 5 6; do sleep 1000 & done
trap 'spent=yes' XCPU
ulimit -S -t 1
while [ -z "$spent" ]; do :; done
ulimit -S -t unlimited
echo spent
wait
"""
HELD_BYTES = 64 << 20
# `tail` keeps what it may have to print until its input ends.
HOLD = f"""
trap 'exit 0' TERM
(head -c {HELD_BYTES} /dev/zero; echo held >&2; sleep 1000) | tail -c {HELD_BYTES} >/dev/null &
wait
"""
SPENT_NS = 1_000_000_000
LEAST_NS, MOST_NS = SPENT_NS // 5, SPENT_NS * 3 // 2
"""Limits of the figure for `SPEND`. The kernel may count the second from samples; some backends count the unit's start too."""
MOST_BYTES = 1 << 30
"""Far more memory than the shell and the processes of `SPEND` need."""


class UsageContract(ContractBase):
    """Tests of the figures of CPU and memory."""

    @about("list_unit_stats")
    async def test_the_usage_of_a_busy_unit_grows(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stats = supported(runtime, SupportsStats)
        needs_processes(runtime)
        unit_id = await pod.start(running(unit_spec, "busy", BUSY))
        await pod.wait_state(unit_id, UnitState.RUNNING)

        async def look(after: UnitStats | None) -> UnitStats | None:
            for entry in await stats.list_unit_stats({}):
                if entry.id != unit_id or entry.cpu_usage_core_ns is None:
                    continue
                if after is None:
                    return entry
                if entry.at_ns > after.at_ns and entry.cpu_usage_core_ns > (after.cpu_usage_core_ns or 0):
                    return entry
            return None

        first = await eventually(lambda: look(None), "CPU usage of the unit")
        await eventually(lambda: look(first), "larger figures of CPU and time than the first ones")

    async def test_a_running_unit_is_measured(self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec) -> None:
        stats = supported(runtime, SupportsStats)
        unit_id = await pod.start(unit_spec)
        await pod.wait_state(unit_id, UnitState.RUNNING)

        async def look() -> UnitStats | None:
            entries = [s for s in await stats.list_unit_stats(unit_spec.labels) if s.id == unit_id]
            # A process that has just begun its program has no memory yet.
            return entries[0] if entries and entries[0].memory_working_set_bytes else None

        entry = await eventually(look, "figures of the unit")
        assert (entry.uid, entry.name) == (pod.spec.uid, unit_spec.name)
        assert entry.at_ns > 0

    async def test_figures_are_filtered_by_labels(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stats = supported(runtime, SupportsStats)
        unit_id = await pod.start(unit_spec)
        assert unit_id not in [s.id for s in await stats.list_unit_stats({"no": "such-label"})]

    @about("list_unit_stats")
    async def test_cpu_and_memory_of_units_that_do_not_run_are_not_measured(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stats = supported(runtime, SupportsStats)
        unit_id = await pod.create(unit_spec)
        assert is_unmeasured(await figures(stats, unit_id)), "the unit was not started, and has figures"
        await runtime.start_unit(unit_id)
        await pod.wait_state(unit_id, UnitState.RUNNING)
        await runtime.stop_unit(unit_id, 5)
        assert is_unmeasured(await figures(stats, unit_id)), "the unit has ended, and has figures"

    @about("list_unit_stats")
    async def test_the_figures_are_of_the_processes_of_the_unit_and_of_no_others(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stats = supported(runtime, SupportsStats)
        needs_processes(runtime)
        spec = running(unit_spec, "spends", SPEND)
        unit_id = await pod.start(spec)
        await pod.wait_output(unit_id, spec, "spent\n")

        async def look() -> UnitStats | None:
            entry = await figures(stats, unit_id)
            enough = entry is not None and (entry.cpu_usage_core_ns or 0) >= LEAST_NS
            return entry if enough else None

        entry = await eventually(look, "the figures of a unit that has used 1 s of CPU time")
        assert (entry.cpu_usage_core_ns or 0) <= MOST_NS, (
            f"the unit has used 1 s of CPU time; its figure is {(entry.cpu_usage_core_ns or 0) / 1e9:.2f} s"
        )
        assert 0 < (entry.memory_working_set_bytes or 0) <= MOST_BYTES, (
            f"the unit is a small shell; its memory is {entry.memory_working_set_bytes} bytes"
        )

    @about("list_unit_stats")
    async def test_memory_is_in_bytes_and_a_cpu_rate_in_nano_cores(
        self, runtime: Runtime, pod: Pod, unit_spec: UnitSpec
    ) -> None:
        stats = supported(runtime, SupportsStats)
        needs_processes(runtime)
        spec = running(unit_spec, "holds", HOLD)
        unit_id = await pod.start(spec)
        await pod.wait_output(unit_id, spec, "held\n")

        async def look() -> UnitStats | None:
            entry = await figures(stats, unit_id)
            enough = entry is not None and (entry.memory_working_set_bytes or 0) >= HELD_BYTES // 2
            return entry if enough else None

        entry = await eventually(
            look, f"a memory figure of at least half of the {HELD_BYTES} bytes that it holds"
        )
        assert (entry.memory_working_set_bytes or 0) <= HELD_BYTES * 8
        rate = entry.cpu_usage_nano_cores
        assert rate is None or rate <= (os.cpu_count() or 1) * 2_000_000_000


async def figures(stats: SupportsStats, unit_id: UnitId) -> UnitStats | None:
    """Return the figures of one unit; None if it is not measured."""
    return next((entry for entry in await stats.list_unit_stats({}) if entry.id == unit_id), None)


def is_unmeasured(entry: UnitStats | None) -> bool:
    """Return whether there are no figures of CPU and memory; 0 is a figure, None is not."""
    return entry is None or (entry.cpu_usage_core_ns is None and entry.memory_working_set_bytes is None)
