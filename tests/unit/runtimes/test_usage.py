"""Usage of each runtime: asked at once, remembered when it falls silent."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from msgspec.structs import replace

from kubeletx.api import PodUid, SupportsStats, Traits, UnitId, UnitStats
from kubeletx.runtimes.registry import RuntimeRegistry
from kubeletx.runtimes.usage import UsageBoard, with_rate
from kubeletx.testing import FakeRuntime
from tests.unit.runtimes.conftest import AGENT, World, sandbox_of, unit_of


def stats(**more: int | None) -> UnitStats:
    return UnitStats(id=UnitId("u"), uid=PodUid("p"), name="c", at_ns=more.pop("at_ns", 0) or 0, **more)


def start(world: World, runtime: str, pod: str = "a") -> None:
    backend = world.runtimes[runtime].backend
    sandbox_id = backend.add_sandbox(sandbox_of(runtime, pod))
    backend.start_unit(backend.add_unit(sandbox_id, unit_of(runtime, pod)))


def board(world: World, registry: RuntimeRegistry) -> UsageBoard:
    return UsageBoard(registry, agent_id=AGENT, clock=world.clock, deadline_seconds=0.05)


@pytest.fixture
def two(world: World) -> World:
    world.endpoints = (world.endpoint("one"), world.endpoint("two"))
    return world


async def test_a_runtime_that_does_not_answer_keeps_its_last_figures_and_is_marked(two: World) -> None:
    async with two.running() as registry:
        usage = board(two, registry)
        for name in ("one", "two"):
            start(two, name)
        first = await usage.read()
        assert [(one.name, one.answered, len(one.units)) for one in first] == [
            ("one", True, 1),
            ("two", True, 1),
        ]
        two.clock.advance(10)
        two.runtimes["two"].script("list_unit_stats", hang=True)
        second = await usage.read()
        assert [one.answered for one in second] == [True, False]
        assert second[1].units == first[1].units
        assert second[1].at == first[1].at


async def test_a_runtime_that_never_answered_has_no_figures(two: World) -> None:
    async with two.running() as registry:
        two.runtimes["two"].script("list_unit_stats", hang=True)
        assert [(one.answered, one.units) for one in await board(two, registry).read()] == [
            (True, ()),
            (False, ()),
        ]


async def test_fresh_figures_are_not_asked_for_again(two: World) -> None:
    async with two.running() as registry:
        usage = board(two, registry)
        await usage.read()
        await usage.read()
        assert two.runtimes["one"].counts["list_unit_stats"] == 1


async def test_what_cannot_measure_did_not_answer(two: World) -> None:
    two.without = {"one": (SupportsStats,)}
    async with two.running() as registry:
        assert [one.answered for one in await board(two, registry).read()] == [False, True]


async def test_a_remote_runtime_is_marked(two: World) -> None:
    two.traits["two"] = Traits(remote=True)
    async with two.running() as registry:
        assert [one.remote for one in await board(two, registry).read()] == [False, True]


async def test_units_of_others_are_not_counted(two: World) -> None:
    async with two.running() as registry:
        start(two, "one")
        backend = two.runtimes["one"].backend
        sandbox_id = backend.add_sandbox(sandbox_of("somebody-else", "b"))
        backend.start_unit(backend.add_unit(sandbox_id, unit_of("somebody-else", "b")))
        (one, _) = await board(two, registry).read()
        assert [unit.uid for unit in one.units] == ["uid-a"]


def report_only_counters(runtime: FakeRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the CPU rates out of what the runtime reports."""
    measured = runtime.list_unit_stats

    async def counters(match: Mapping[str, str]) -> Sequence[UnitStats]:
        return [replace(unit, cpu_usage_nano_cores=None) for unit in await measured(match)]

    monkeypatch.setattr(runtime, "list_unit_stats", counters)


async def test_a_unit_that_was_measured_once_is_measured_again_a_second_later_for_its_rate(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two.running() as registry:
        usage = board(two, registry)
        report_only_counters(two.runtimes["one"], monkeypatch)
        start(two, "one")
        assert (await usage.read())[0].units[0].cpu_usage_nano_cores is None
        asked = asyncio.create_task(usage.read_rates())
        await two.clock.run_for(1.0)
        assert (await asked)[0].units[0].cpu_usage_nano_cores is not None
        assert two.runtimes["one"].counts["list_unit_stats"] == 2
        await usage.read_rates()
        assert two.runtimes["one"].counts["list_unit_stats"] == 2


async def test_a_unit_whose_counter_does_not_move_is_waited_for_once(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two.running() as registry:
        usage = board(two, registry)
        monkeypatch.setattr(two.runtimes["one"].backend, "now_ns", lambda: 1)
        report_only_counters(two.runtimes["one"], monkeypatch)
        start(two, "one")
        await usage.read()
        two.clock.advance(1.0)
        assert (await usage.read_rates())[0].units[0].cpu_usage_nano_cores is None
        two.clock.advance(10.0)
        assert (await usage.read_rates())[0].units[0].cpu_usage_nano_cores is None


async def test_a_runtime_that_stops_answering_is_not_waited_for(
    two: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two.running() as registry:
        usage = board(two, registry)
        report_only_counters(two.runtimes["one"], monkeypatch)
        start(two, "one")
        await usage.read()
        two.clock.advance(1.0)
        two.runtimes["one"].script("list_unit_stats", hang=True)
        assert not (await usage.read_rates())[0].answered


def test_the_rate_comes_from_two_readings_of_the_counter() -> None:
    before = stats(at_ns=1_000_000_000, cpu_usage_core_ns=100)
    after = stats(at_ns=3_000_000_000, cpu_usage_core_ns=1_000_000_100)
    assert with_rate(after, before).cpu_usage_nano_cores == 500_000_000
    assert with_rate(after, None).cpu_usage_nano_cores is None
    assert with_rate(before, after).cpu_usage_nano_cores is None
    assert with_rate(after, after).cpu_usage_nano_cores is None
