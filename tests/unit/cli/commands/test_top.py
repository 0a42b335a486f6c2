"""``kubeletx top``."""

from __future__ import annotations

from typing import Any

from kubeletx.server.views import MeasuredUsage, PodUsage, RuntimeUsageView, UsageView
from tests.unit.cli.commands.objects import Run


def test_usage_is_shown_and_partial_sums_are_reported(agent: Any, kubeletx: Run) -> None:
    agent.backend.usage_view = UsageView(
        node_name="node-1",
        node=MeasuredUsage(cpu_millicores=500, memory_bytes=512 << 20),
        node_cpu_capacity_millicores=2000,
        node_memory_capacity_bytes=4096 << 20,
        runtimes=(
            RuntimeUsageView(
                name="one", workload_type="container", pods=1, usage=MeasuredUsage(cpu_millicores=5)
            ),
        ),
        pods=(
            PodUsage(
                namespace="default",
                name="a",
                runtime="one",
                usage=MeasuredUsage(cpu_millicores=1, memory_bytes=1 << 20),
            ),
            PodUsage(
                namespace="default",
                name="b",
                runtime="one",
                usage=MeasuredUsage(cpu_millicores=9, memory_bytes=2 << 20),
            ),
        ),
        missing=("two",),
    )
    result = kubeletx("top", "pods", "--sort-by", "cpu")
    assert result.stdout.splitlines() == [
        "NAME   CPU(cores)   MEMORY(bytes)   RUNTIME",
        "b      9m           2.0Mi           one",
        "a      1m           1.0Mi           one",
    ]
    assert result.stderr == "Warning: no answer from two; sums are partial\n"
    assert kubeletx("top", "node").stdout.splitlines()[1].split() == ["node-1", "500m", "25%", "512Mi", "12%"]
    assert kubeletx("top", "runtimes").stdout.splitlines()[1].split()[:4] == ["one", "container", "1", "5m"]
    assert kubeletx("top", "pods", "none").exit_code == 1
    assert kubeletx("top", "images").exit_code == 2
