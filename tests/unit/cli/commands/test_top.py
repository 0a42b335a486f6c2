"""``kubeletx top``."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.cli.output import live
from kubeletx.kube.types.core import Container, ResourceRequirements
from kubeletx.server.views import (
    MeasuredUsage,
    PodUsage,
    RuntimeUsageView,
    UsageHistory,
    UsageSeries,
    UsageView,
)
from tests.unit.cli.commands.objects import T0, Run, pod
from tests.unit.cli.terminal import terminal


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
    assert kubeletx("top", "runtimes", "none").exit_code == 1
    assert kubeletx("top", "images").exit_code == 2


def measure(agent: Any, *names: str) -> None:
    """Let the pod web use 95 % of its memory, and pods with these names, which have no limits, the same."""
    limits = ResourceRequirements(limits={"cpu": "500m", "memory": "20Mi"})
    web = pod()
    spec = replace(web.spec, containers=(Container(name="main", resources=limits),))
    agent.backend.put(replace(web, spec=spec))
    agent.backend.usage_view = UsageView(
        node_name="node-1",
        node=MeasuredUsage(cpu_millicores=500, memory_bytes=512 << 20),
        node_cpu_capacity_millicores=2000,
        runtimes=(RuntimeUsageView(name="one", workload_type="container", pods=1, usage=MeasuredUsage()),),
        pods=tuple(
            PodUsage(
                namespace="default",
                name=name,
                uid=str(web.uid) if name == "web" else name,
                runtime="one",
                usage=MeasuredUsage(cpu_millicores=5, memory_bytes=19 << 20),
            )
            for name in ("web", *names)
        ),
    )
    series = UsageSeries(uid=str(web.uid), cpu=(0, 4, None, 8), memory=(1, 1, 2, 2))
    agent.backend.history = UsageHistory(
        next=4, interval_seconds=10.0, times=(T0,) * 4, series=(series, replace(series, uid=""))
    )


def test_a_watch_in_a_pipe_is_a_table_each_interval_with_the_past_and_limits(
    agent: Any, kubeletx: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(live, "sleep", sleep)
    measure(agent, "b\x1b[2J")
    result = kubeletx("top", "pods", "-w", "--interval", "3s")
    head, web, hostile, _, *again = result.stdout.splitlines()
    assert (result.exit_code, slept, again) == (130, [3.0, 3.0], [head, web, hostile])
    assert head.split("   ")[0] == "NAME"
    assert re.fullmatch(r"web +5m/500m +▁▅ █ +19Mi/20Mi +▅▅██ +one", web)
    assert hostile.startswith("b?[2J ")
    slept.clear()
    assert "\x1b" not in result.stdout
    assert "\x1b[31m19Mi/20Mi\x1b[0m" in kubeletx("top", "pods", "-w", "--color=always").stdout
    slept.clear()
    assert re.search(r"\none .* ▁▅ █ +<unknown> +▅▅██ ", kubeletx("top", "runtimes", "-w").stdout)
    slept.clear()
    assert re.search(r"\nnode-1 +500m/2000m +▁▅ █ +512Mi +▅▅██\n", kubeletx("top", "node", "-w").stdout)


def test_a_watch_on_a_terminal_is_refreshed_in_place_and_leaves_it_as_it_was(agent: Any) -> None:
    measure(agent, *(f"a-pod-with-a-name-that-is-as-long-as-names-of-deployments-{n}" for n in range(40)))
    with terminal(
        "--root-dir", str(agent.root), "top", "pods", "-w", "--interval", "1h", NO_COLOR="1"
    ) as out:
        out.read_until("\x1b[?1049h\x1b[?25l\x1b[H")
        lines = out.read_until("\x1b[J").split("\r\n")
        plain = [re.sub(r"\x1b\[[KJ]", "", line) for line in lines]
        assert len(plain) == 24
        assert plain[-1] == "19 more lines"
        assert max(map(len, plain)) <= 80
        assert plain[1].startswith("web ")
        assert not any("\x1b" in line for line in plain)
        out.resize(200, 60)
        wide = re.sub(r"\x1b\[[HKJ]", "", out.read_until("\x1b[J")).split("\r\n")
        assert len(wide) == 42
        assert 150 < max(map(len, wide)) <= 200
        out.process.send_signal(signal.SIGINT)
        assert out.end() == (130, "\x1b[?25h\x1b[?1049l\r\n")
