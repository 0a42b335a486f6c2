"""Usage of the node's pods: per container or machine, and per runtime. Pure.

`missing` names every runtime whose values are not there because it did not answer (rule 7 of
docs/architecture.md). A value that a runtime does not measure is None and left out of sums.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kubeletx.api import PodUid, RuntimeName, UnitStats
from kubeletx.runtimes.usage import RuntimeUsage


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Measured usage of one container or machine, or of several together. None: not measured, never 0.

    `memory_bytes`: the working set if the runtime reports it, else all memory in use.
    """

    cpu_millicores: int | None = None
    memory_bytes: int | None = None
    fs_bytes: int | None = None


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Usage of all runtimes at one time.

    For a runtime that does not answer, `runtimes` has its last known values; they are not part of any sum.
    """

    runtimes: tuple[RuntimeUsage, ...] = ()

    @property
    def answered(self) -> tuple[RuntimeUsage, ...]:
        """Runtimes that answered, so that their values are current."""
        return tuple(runtime for runtime in self.runtimes if runtime.answered)

    @property
    def missing(self) -> tuple[RuntimeName, ...]:
        """Names of the runtimes that did not answer, or cannot measure usage."""
        return tuple(runtime.name for runtime in self.runtimes if not runtime.answered)

    def units_by_pod(self) -> Mapping[PodUid, tuple[UnitStats, ...]]:
        """Return the measurements of each pod's containers or machine, from the runtimes that answered."""
        units: dict[PodUid, tuple[UnitStats, ...]] = {}
        for runtime in self.answered:
            for unit in runtime.units:
                units[unit.uid] = (*units.get(unit.uid, ()), unit)
        return units


def usage_of(stats: UnitStats) -> Usage:
    """Convert a runtime's measurements of one container or machine to `Usage`."""
    nano_cores, memory = stats.cpu_usage_nano_cores, stats.memory_working_set_bytes
    return Usage(
        cpu_millicores=None if nano_cores is None else round(nano_cores / 1_000_000),
        memory_bytes=stats.memory_usage_bytes if memory is None else memory,
        fs_bytes=stats.fs_used_bytes,
    )


def usage_of_runtime(runtime: RuntimeUsage) -> Usage:
    """Return the usage of all containers and machines of this agent's pods on one runtime."""
    return add_up(usage_of(unit) for unit in runtime.units)


def add_up(usages: Iterable[Usage]) -> Usage:
    """Return the sum of each field; a field that is None in all of `usages` is None."""
    sums: dict[str, int] = {}
    for usage in usages:
        for name in Usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                sums[name] = sums.get(name, 0) + value
    return Usage(**sums)
