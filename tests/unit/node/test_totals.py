"""Sums over runtimes that say when they are partial."""

from __future__ import annotations

from kubeletx.api import PodUid, RuntimeName, UnitId, UnitStats
from kubeletx.node.totals import Usage, UsageReport, add_up, usage_of
from kubeletx.runtimes.usage import RuntimeUsage


def unit(pod: str, name: str = "main", **figures: int) -> UnitStats:
    return UnitStats(id=UnitId(f"{pod}-{name}"), uid=PodUid(pod), name=name, at_ns=1, **figures)


def runtime(name: str, *units: UnitStats, answered: bool = True) -> RuntimeUsage:
    return RuntimeUsage(name=RuntimeName(name), workload_type="container", answered=answered, units=units)


def test_figures_of_a_silent_runtime_are_in_no_sum_and_it_is_named() -> None:
    silent = runtime("silent", unit("a", memory_working_set_bytes=5), answered=False)
    report = UsageReport(runtimes=(silent, runtime("good", unit("b", memory_working_set_bytes=1))))
    assert report.missing == ("silent",)
    assert list(report.units_by_pod()) == ["b"]
    assert [one.name for one in report.answered] == ["good"]


def test_the_units_of_a_pod_stand_together() -> None:
    units = (
        unit("a", "x", memory_working_set_bytes=1),
        unit("b"),
        unit("a", "y", memory_working_set_bytes=2),
    )
    found = UsageReport(runtimes=(runtime("one", *units),)).units_by_pod()
    assert [one.name for one in found[PodUid("a")]] == ["x", "y"]


def test_memory_without_a_working_set_is_what_is_used() -> None:
    assert usage_of(unit("a", memory_usage_bytes=9)).memory_bytes == 9
    assert usage_of(unit("a", memory_usage_bytes=9, memory_working_set_bytes=0)).memory_bytes == 0


def test_nothing_measured_is_none_and_not_zero() -> None:
    assert add_up([Usage(), Usage(memory_bytes=0)]) == Usage(memory_bytes=0)
    assert add_up([]) == Usage()
