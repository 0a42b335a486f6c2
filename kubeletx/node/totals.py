"""Usage of the node's pods: per unit, per pod, per runtime and in total, with the runtimes that did not answer. Pure.

`missing` names every runtime whose figures are not in the total (rule 7). A figure that a runtime does not measure is
None and left out of sums. Remote runtimes are reported but not part of the node's total (DECISIONS 19).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from kubeletx.api import PodUid, RuntimeName, UnitStats
from kubeletx.runtimes.usage import RuntimeUsage


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """Measured usage; None, never 0, for what was not measured.

    `memory_bytes`: the working set if the runtime reports it.
    """

    cpu_millicores: int | None = None
    memory_bytes: int | None = None
    fs_bytes: int | None = None


class UsageReport(msgspec.Struct, frozen=True, kw_only=True):
    """Usage by runtime. Figures of a runtime that does not answer are old and in no sum."""

    runtimes: tuple[RuntimeUsage, ...] = ()

    @property
    def answered(self) -> tuple[RuntimeUsage, ...]:
        """The runtimes whose figures are current."""
        return tuple(runtime for runtime in self.runtimes if runtime.answered)

    @property
    def missing(self) -> tuple[RuntimeName, ...]:
        """The runtimes that did not answer, or cannot measure."""
        return tuple(runtime.name for runtime in self.runtimes if not runtime.answered)

    @property
    def total(self) -> Usage:
        """The sum over local runtimes that answered; see `missing` for what is not in it."""
        return add_up(usage_of_runtime(runtime) for runtime in self.answered if not runtime.remote)

    def units_by_pod(self) -> Mapping[PodUid, tuple[UnitStats, ...]]:
        """The units of each pod that could be measured now."""
        units: dict[PodUid, tuple[UnitStats, ...]] = {}
        for runtime in self.answered:
            for unit in runtime.units:
                units[unit.uid] = (*units.get(unit.uid, ()), unit)
        return units


def usage_of(stats: UnitStats) -> Usage:
    """One unit's figures as users see them."""
    nano_cores, memory = stats.cpu_usage_nano_cores, stats.memory_working_set_bytes
    return Usage(
        cpu_millicores=None if nano_cores is None else round(nano_cores / 1_000_000),
        memory_bytes=stats.memory_usage_bytes if memory is None else memory,
        fs_bytes=stats.fs_used_bytes,
    )


def usage_of_runtime(runtime: RuntimeUsage) -> Usage:
    """The sum over all units of this agent on the runtime."""
    return add_up(usage_of(unit) for unit in runtime.units)


def add_up(usages: Iterable[Usage]) -> Usage:
    """The sum of the measured values; None if none was measured."""
    sums: dict[str, int] = {}
    for usage in usages:
        for name in Usage.__struct_fields__:
            value = getattr(usage, name)
            if value is not None:
                sums[name] = sums.get(name, 0) + value
    return Usage(**sums)
