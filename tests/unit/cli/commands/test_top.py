"""``kubeletx top``."""

from __future__ import annotations

import re
import signal
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.cli.output import live
from kubeletx.server.views import (
    MeasuredUsage,
    PodUsage,
    RuntimeUsageView,
    UsageHistory,
    UsageSeries,
    UsageView,
)
from tests.unit.cli.commands.objects import T0, Run
from tests.unit.cli.terminal import terminal


@pytest.fixture(autouse=True)
def usage(agent: Any) -> UsageView:
    """Usage of a node with the pods web, of which the last minutes are known, and b, with a hostile runtime."""
    pods = tuple(
        PodUsage(
            namespace="default",
            name=name,
            uid=name,
            runtime=runtime,
            usage=MeasuredUsage(cpu_millicores=cpu, memory_bytes=memory << 20),
            cpu_limit_millicores=500,
            memory_limit_bytes=limit,
        )
        for name, runtime, cpu, memory, limit in (
            ("web", "one", 1, 19, 20 << 20),
            ("b", "\x1b[2J", 9, 2, None),
        )
    )
    one = RuntimeUsageView(
        name="one", workload_type="container", pods=1, usage=MeasuredUsage(cpu_millicores=5)
    )
    made = agent.backend.usage_view = UsageView(
        node_name="node-1",
        node=MeasuredUsage(cpu_millicores=500, memory_bytes=512 << 20),
        node_cpu_capacity_millicores=2000,
        node_memory_capacity_bytes=4096 << 20,
        runtimes=(one,),
        pods=pods,
        missing=("two",),
    )
    series = UsageSeries(uid="web", cpu=(0, 4, None, 8), memory=(1, 1, 2, 2))
    agent.backend.history = UsageHistory(
        next=4, interval_seconds=10.0, times=(T0,) * 4, series=(series, replace(series, uid=""))
    )
    return made


def test_usage_is_shown_and_partial_sums_are_reported(kubeletx: Run) -> None:
    result = kubeletx("top", "pods", "--sort-by", "cpu")
    assert result.stdout.splitlines() == [
        "NAME   CPU(cores)   MEMORY(bytes)   RUNTIME",
        "b      9m           2.0Mi           ?[2J",
        "web    1m           19Mi            one",
    ]
    assert result.stderr == "Warning: no answer from two; sums are partial\n"
    assert kubeletx("top", "node").stdout.splitlines()[1].split() == ["node-1", "500m", "25%", "512Mi", "12%"]
    assert kubeletx("top", "runtimes").stdout.splitlines()[1].split()[:4] == ["one", "container", "1", "5m"]
    for kind, name, code in (("pods", "none", 1), ("runtimes", "none", 1), ("images", "", 2)):
        assert kubeletx("top", kind, *[name] * bool(name)).exit_code == code


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("pods", ["web +1m/500m +▁▅ █ +19Mi/20Mi +▅▅██ +one", r"b +9m/500m +2.0Mi +\?\[2J"]),
        ("runtimes", ["one +container +1 +5m +▁▅ █ +<unknown> +▅▅██ +<unknown>"]),
        ("node", ["node-1 +500m/2000m +▁▅ █ +512Mi/4096Mi +▅▅██"]),
    ],
)
def test_a_watch_in_a_pipe_is_a_table_each_interval_with_the_past_and_limits(
    kubeletx: Run, monkeypatch: pytest.MonkeyPatch, kind: str, lines: list[str]
) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(live, "sleep", sleep)
    result = kubeletx("top", kind, "-w")
    assert (result.exit_code, slept) == (130, [live.REFRESH_SECONDS] * 2)
    first, _, again = result.stdout.partition("\n\n")
    assert again.strip() == first
    for line, wanted in zip(first.splitlines()[1:], [*lines, "Warning: .*"], strict=True):
        assert re.fullmatch(wanted, line)


def test_a_watch_on_a_terminal_is_refreshed_in_place_and_leaves_it_as_it_was(
    agent: Any, usage: UsageView
) -> None:
    (web, _) = usage.pods
    long = [
        replace(web, name=f"a-pod-with-a-name-that-is-as-long-as-names-of-deployments-{n}") for n in range(40)
    ]
    agent.backend.usage_view = replace(usage, pods=(web, *long))
    with terminal("--root-dir", str(agent.root), "top", "pods", "-w") as out:

        def frame() -> list[str]:
            shown = out.read_until("\x1b[J").removesuffix("\x1b[K\x1b[J").removeprefix("\x1b[H")
            return shown.split("\x1b[K\r\n")

        out.read_until("\x1b[?1049h\x1b[?25l")
        narrow = frame()
        assert (len(narrow), narrow[-1]) == (24, "20 more lines")
        assert narrow[1].startswith("web ")
        out.resize(200, 60)
        while len(wide := frame()) != 43:
            assert len(wide) == 24
        for lines, least, most in ((narrow, 60, 80), (wide, 150, 200)):
            assert least < max(map(len, lines)) <= most
            assert "\x1b" not in "".join(lines)
        out.process.send_signal(signal.SIGTERM)
        code, text = out.end()
        assert (code, text.endswith("\x1b[?25h\x1b[?1049l\r\n")) == (130, True)
