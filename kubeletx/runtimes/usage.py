"""`UsageBoard`: CPU, memory and disk usage of this agent's containers and machines, by runtime.

All runtimes are queried in parallel with a short deadline. A runtime that does not answer keeps its last values and is
marked as not answered (rule 7 of docs/architecture.md). A value that a runtime does not measure is None, never 0. A CPU
rate that a runtime does not report is computed from two readings of its counter. `kubeletx.node.totals` sums the usage
over all runtimes.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import NamedTuple

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, RuntimeName, SupportsStats, UnitStats, names

from .handles.handle import RuntimeHandle
from .registry import RuntimeRegistry

log = structlog.get_logger(__name__)

DEADLINE_SECONDS = 5.0
"""Deadline in seconds of the query to each runtime; a runtime that takes longer counts as not answering."""
FRESH_SECONDS = 5.0
"""Values up to this age in seconds are reused instead of querying the runtime."""
RATE_SECONDS = 1.0
"""Seconds between the two readings of a CPU counter from which `UsageBoard.read_rates` computes a first rate."""


class RuntimeUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of the containers and machines on one runtime.

    `answered`: False if the runtime did not answer, so that the values are old or missing. `remote`: the runtime is on
    another machine. `at`: time at which the values were read; None if never. `units`: usage of each container or
    machine.
    """

    name: RuntimeName
    workload_type: str
    answered: bool
    remote: bool = False
    at: datetime | None = None
    units: tuple[UnitStats, ...] = ()


class _Reading(NamedTuple):
    """Answer of a runtime. `at`: monotonic time. `lacks_rates`: a unit has a CPU counter, and no rate yet."""

    at: float
    usage: RuntimeUsage
    lacks_rates: bool


class UsageBoard:
    """Queries the usage on all runtimes and keeps the last values of each."""

    def __init__(
        self,
        registry: RuntimeRegistry,
        *,
        agent_id: str,
        clock: Clock,
        deadline_seconds: float = DEADLINE_SECONDS,
        fresh_seconds: float = FRESH_SECONDS,
    ) -> None:
        """`agent_id`: id of this agent; containers and machines of other agents are left out.

        `deadline_seconds`, `fresh_seconds`: see `DEADLINE_SECONDS` and `FRESH_SECONDS`.
        """
        self._registry = registry
        self._agent_id = agent_id
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._fresh_seconds = fresh_seconds
        self._last: dict[RuntimeName, _Reading] = {}
        self._asking: asyncio.Task[tuple[RuntimeUsage, ...]] | None = None

    async def read(self) -> tuple[RuntimeUsage, ...]:
        """Query the usage on all runtimes; return one entry per runtime, in the configured order.

        Concurrent callers share one query.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._read(), name="usage")
        return await asyncio.shield(self._asking)

    async def read_rates(self) -> tuple[RuntimeUsage, ...]:
        """Like `read`, but wait up to `RATE_SECONDS` for the CPU rate of a unit that was measured only once."""
        usages = await self.read()
        readings = [self._last.get(usage.name) for usage in usages if usage.answered]
        once = [reading.at for reading in readings if reading is not None and reading.lacks_rates]
        if not once:
            return usages
        await self._clock.sleep(max(once) + RATE_SECONDS - self._clock.monotonic())
        return await self.read()

    async def _read(self) -> tuple[RuntimeUsage, ...]:
        handles = self._registry.handles()
        usages = await asyncio.gather(*(self._of(handle) for handle in handles))
        present = {handle.name for handle in handles}
        for name in [name for name in self._last if name not in present]:
            del self._last[name]
        return tuple(usages)

    async def _of(self, handle: RuntimeHandle) -> RuntimeUsage:
        now = self._clock.monotonic()
        reading = self._last.get(handle.name)
        last = reading.usage if reading is not None else None
        service = handle.capability(SupportsStats)
        if service is None or not handle.state.reachable:
            return _silent(handle, last)
        if reading is not None and now - reading.at < self._fresh_for(reading):
            return reading.usage
        match = {names.AGENT_ID: self._agent_id, names.RUNTIME_NAME: str(handle.name)}
        try:
            units = await handle.ask(
                "list_unit_stats", lambda: service.list_unit_stats(match), seconds=self._deadline_seconds
            )
        except KubeletxError as error:
            log.debug("Got no usage figures", runtime=handle.name, err=str(error))
            return _silent(handle, last)
        before = {unit.id: unit for unit in last.units} if last is not None else {}
        usage = RuntimeUsage(
            name=handle.name,
            workload_type=handle.workload_type,
            answered=True,
            remote=handle.traits is not None and handle.traits.remote,
            at=self._clock.now(),
            units=tuple(with_rate(unit, before.get(unit.id)) for unit in units),
        )
        lacks_rates = any(_lacks_rate(unit) and unit.id not in before for unit in usage.units)
        self._last[handle.name] = _Reading(now, usage, lacks_rates)
        return usage

    def _fresh_for(self, reading: _Reading) -> float:
        # A clock may wake `read_rates` a little early; a reading that is then reused would have no rates.
        return min(self._fresh_seconds, 0.9 * RATE_SECONDS) if reading.lacks_rates else self._fresh_seconds


def _silent(handle: RuntimeHandle, last: RuntimeUsage | None) -> RuntimeUsage:
    """Return the last values of a runtime, marked as not answered."""
    if last is None:
        return RuntimeUsage(name=handle.name, workload_type=handle.workload_type, answered=False)
    return msgspec.structs.replace(last, answered=False)


def with_rate(unit: UnitStats, before: UnitStats | None) -> UnitStats:
    """Return `unit` with its CPU rate; if the runtime reports none, compute it from two readings of the CPU counter.

    `before`: the earlier reading; None if there is none. `unit` is returned unchanged if no rate can be computed.
    """
    if unit.cpu_usage_nano_cores is not None or unit.cpu_usage_core_ns is None:
        return unit
    if before is None or before.cpu_usage_core_ns is None or unit.at_ns <= before.at_ns:
        return unit
    used = unit.cpu_usage_core_ns - before.cpu_usage_core_ns
    if used < 0:  # the unit was restarted under the same id
        return unit
    return msgspec.structs.replace(
        unit, cpu_usage_nano_cores=used * 1_000_000_000 // (unit.at_ns - before.at_ns)
    )


def _lacks_rate(unit: UnitStats) -> bool:
    return unit.cpu_usage_nano_cores is None and unit.cpu_usage_core_ns is not None
