"""A runtime that says yes and does nothing, fails at once or reports changes all the time is called at a low rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import Endpoint, EventKind, Internal, NotFound, PodUid, RuntimeEvent, Unavailable
from kubeletx.testing import Behaviour, FakeRuntime
from kubeletx_testing.bad_plugins.fails_at_once import FailingRuntime
from kubeletx_testing.bad_plugins.floods_events import FloodingRuntime
from kubeletx_testing.bad_plugins.no_effect import NoEffectRuntime
from tests.unit.pods.manager_model import Node, a_pod

UID = PodUid("uid-web")
SECONDS = 30
OF_THE_RUNTIME = ("open", "close", "version", "health", "events", "store_info", "list_images")
"""Calls that are not made for one pod."""
PER_SECOND = 10
FIRST_SECONDS = 3
"""Time in which the calls at once, and the first short delays, are over."""


class BadNode(Node):
    """A node whose runtime is made by `make`."""

    def __init__(self, root: Path, make: Callable[..., FakeRuntime]) -> None:
        super().__init__(root, "one")
        self._bad = make

    def _make(self, endpoint: Endpoint, _settings: Any, _host: Any) -> FakeRuntime:
        runtime = self._bad(endpoint.name, clock=self.clock)
        runtime.backend.add_image("busybox")
        self.runtimes[endpoint.name] = runtime
        return runtime


async def busiest_second(node: Node, seconds: float = SECONDS) -> tuple[int, Counter[str]]:
    """Let time pass; return the greatest number of calls for pods in one second, and these calls by method.

    The first `FIRST_SECONDS` are not counted.
    """
    runtime = node.runtimes["one"]
    await pass_time(node, FIRST_SECONDS)
    began = node.clock.monotonic()
    runtime.journal.clear()
    await pass_time(node, seconds)
    by_second: dict[int, Counter[str]] = {}
    for call in runtime.journal:
        if call.method not in OF_THE_RUNTIME:
            by_second.setdefault(int(call.at - began), Counter())[call.method] += 1
    busiest = max(by_second.values(), key=lambda one: one.total(), default=Counter())
    return busiest.total(), busiest


async def pass_time(node: Node, seconds: float) -> None:
    end = node.clock.monotonic() + seconds
    await node.until(lambda: node.clock.monotonic() >= end)


@pytest.mark.parametrize(
    ("method", "reason"),
    [("create_sandbox", "FailedCreatePodSandBox"), ("start_unit", "RuntimeWithoutEffect")],
)
async def test_a_start_without_effect_is_repeated_slowly(tmp_path: Path, method: str, reason: str) -> None:
    node = BadNode(tmp_path, lambda *a, **k: NoEffectRuntime(*a, without_effect=(method,), **k))
    async with node.running() as manager:
        manager.update("file", a_pod())
        most, calls = await busiest_second(node)
        assert most <= PER_SECOND, calls
        assert node.runtimes["one"].counts[method] >= 5
        assert reason in [one.reason for one in node.sink.recorded]


@pytest.mark.parametrize("method", ["stop_unit", "stop_sandbox", "remove_sandbox"])
async def test_an_end_without_effect_is_repeated_slowly(tmp_path: Path, method: str) -> None:
    latency = {method: 0.001}  # the agent tells a list before a call from a list after it by the clock
    node = BadNode(
        tmp_path, lambda *a, **k: NoEffectRuntime(*a, without_effect=(method,), latency=latency, **k)
    )
    async with node.running() as manager:
        await node.start(a_pod())
        manager.remove("file", UID)
        most, calls = await busiest_second(node)
        assert most <= PER_SECOND, calls
        assert UID in manager.workers
        assert node.runtimes["one"].counts[method] >= 5


@pytest.mark.parametrize(
    "error",
    [
        Internal("broken"),
        Unavailable("not now"),
        NotFound("none"),
        ValueError("a bug"),
        OSError(2, "no file"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("is_running", [False, True])
async def test_a_runtime_whose_calls_all_fail_is_called_slowly(
    tmp_path: Path, error: Exception, *, is_running: bool
) -> None:
    node = BadNode(tmp_path, FailingRuntime)
    async with node.running() as manager:
        runtime = node.runtimes["one"]
        assert isinstance(runtime, FailingRuntime)
        if is_running:
            await node.start(a_pod())
            manager.remove("file", UID)
        else:
            manager.update("file", a_pod())
        runtime.fail(error)
        most, calls = await busiest_second(node)
        assert most <= PER_SECOND, calls
        assert runtime.counts["health"] <= 6 * SECONDS


async def test_a_container_that_exits_at_once_is_restarted_with_back_off(tmp_path: Path) -> None:
    node = Node(tmp_path, "one")
    async with node.running() as manager:
        node.runtimes["one"].backend.behave = lambda _spec: Behaviour(runs_seconds=0.0, exit_code=1)
        manager.update("file", a_pod())
        most, calls = await busiest_second(node, 60)
        assert most <= 2 * PER_SECOND, calls  # a restart is progress: it takes about ten calls
        assert 2 <= node.runtimes["one"].counts["create_unit"] <= 5


@pytest.mark.parametrize("kind", [EventKind.CHANGED, EventKind.OOM, EventKind.STOPPED, EventKind.DELETED])
@pytest.mark.parametrize("per_second", [50_000, 500])
async def test_a_pod_whose_runtime_reports_changes_all_the_time_is_read_slowly(
    tmp_path: Path, kind: EventKind, per_second: int
) -> None:
    node = BadNode(tmp_path, lambda *a, **k: FloodingRuntime(*a, per_second=per_second, **k))
    async with node.running():
        await node.start(a_pod())
        runtime = node.runtimes["one"]
        assert isinstance(runtime, FloodingRuntime)
        unit_id = runtime.backend.find_unit("c0")
        runtime.flood(RuntimeEvent(kind=kind, unit_id=unit_id, uid=UID))
        most, calls = await busiest_second(node, 5)
        assert most <= PER_SECOND, calls
        assert [one.reason for one in node.sink.recorded].count("RuntimeEventsThrottled") == 1


async def test_an_exit_during_a_flood_is_seen_within_two_seconds(tmp_path: Path) -> None:
    node = BadNode(tmp_path, lambda *a, **k: FloodingRuntime(*a, per_second=500, **k))
    async with node.running():
        await node.start(a_pod(restart_policy="Never"))
        runtime = node.runtimes["one"]
        assert isinstance(runtime, FloodingRuntime)
        unit_id = runtime.backend.find_unit("c0")
        runtime.flood(RuntimeEvent(kind=EventKind.CHANGED, unit_id=unit_id, uid=UID))
        await pass_time(node, 3)
        runtime.backend.exit_unit(unit_id, 3)
        began = node.clock.monotonic()
        await node.until(lambda: node.phase(UID) == "Failed")
        assert node.clock.monotonic() - began <= 2
