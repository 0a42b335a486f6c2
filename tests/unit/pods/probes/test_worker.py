"""When probes run: delays, gating, holds, rest, stopping, recovery (P2, P3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import timedelta

import pytest
import structlog
from msgspec.structs import replace

from kubeletx.api import ObjectRef, UnitId
from kubeletx.kube.types.core import Container, ExecAction, Probe
from kubeletx.pods.model.facts import ProbeFacts
from kubeletx.pods.probes.outcome import ProbeOutcome, ProbeResult
from kubeletx.pods.probes.targets import ProbeTarget
from kubeletx.pods.probes.worker import ProbeSet
from kubeletx.testing.clock import FakeClock
from kubeletx.testing.host import FakeEventSink
from tests.unit.pods.exec_finders import FakeExecFinder

REF = ObjectRef(kind="Pod", name="p", namespace="default", uid="u1")


def probe(name: str, **numbers: int) -> Probe:
    return Probe(exec=ExecAction(command=(name,)), **numbers)  # type: ignore[arg-type]


class Bench:
    """A probe set whose answers come from `gives`, by the probe's name."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.events = FakeEventSink()
        self.gives: dict[str, ProbeOutcome] = {}
        self.asked: list[tuple[str, float]] = []
        self.results: list[ProbeFacts] = []
        self.during: Callable[[], None] | None = None
        self.began = self.clock.monotonic()
        self.set = ProbeSet(
            ref=REF,
            finder=FakeExecFinder(),
            clock=self.clock,
            events=self.events,
            on_result=lambda name, facts: self.results.append(facts),
            ask=self._ask,
            draw=lambda: 0.5,
        )

    async def _ask(self, probe: Probe, target: ProbeTarget, finder: object) -> ProbeResult:
        assert probe.exec is not None
        name = probe.exec.command[0]
        self.asked.append((name, self.clock.monotonic() - self.began))
        if self.during is not None:
            self.during()
        return ProbeResult(self.gives.get(name, ProbeOutcome.SUCCESS), f"{name} says so")

    def target(self, container: Container, unit: str = "u-0", **fields: object) -> ProbeTarget:
        given = {"started_at": self.clock.now(), "field": f"spec.containers{{{container.name}}}", **fields}
        return ProbeTarget(container=container, unit_id=UnitId(unit), **given)  # type: ignore[arg-type]

    def times(self, name: str) -> list[float]:
        return [at for asked, at in self.asked if asked == name]

    def readiness(self) -> list[bool | None]:
        return [result.readiness for result in self.results]

    @property
    def last(self) -> ProbeFacts:
        return self.results[-1]


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench()
    yield made
    await made.set.close()
    assert made.set.running == 0
    assert made.clock.sleepers == 0


READY = Container(name="web", readiness_probe=probe("ready", period_seconds=5))
LIVE = Container(name="web", liveness_probe=probe("live", period_seconds=5, failure_threshold=2))


async def test_a_probe_asks_at_once_and_then_every_period(bench: Bench) -> None:
    bench.set.sync([bench.target(READY)])
    await bench.clock.run_for(12)
    assert bench.times("ready") == [0, 5, 10]
    assert bench.results == [ProbeFacts(unit_id=UnitId("u-0"), readiness=True)]


async def test_syncing_again_starts_nothing_twice(bench: Bench) -> None:
    for _ in range(4):
        bench.set.sync([bench.target(READY, known=bench.results[-1] if bench.results else None)])
        await bench.clock.run_for(1)
    assert bench.set.running == 1
    assert bench.times("ready") == [0]


async def test_the_initial_delay_counts_from_the_units_start(bench: Bench) -> None:
    container = Container(name="web", readiness_probe=probe("ready", initial_delay_seconds=30))
    started = bench.clock.now() - timedelta(seconds=20)
    bench.set.sync([bench.target(container, started_at=started)])
    await bench.clock.run_for(9)
    assert bench.times("ready") == []
    await bench.clock.run_for(2)
    assert bench.times("ready") == [10]


async def test_a_clock_that_jumped_back_does_not_stretch_the_initial_delay(bench: Bench) -> None:
    container = Container(name="web", readiness_probe=probe("ready", initial_delay_seconds=30))
    bench.set.sync([bench.target(container, started_at=bench.clock.now() + timedelta(days=1))])
    await bench.clock.run_for(31)
    assert bench.times("ready") == [30]


async def test_the_startup_probe_holds_back_the_others_which_then_ask_at_once(bench: Bench) -> None:
    container = Container(
        name="web",
        readiness_probe=probe("ready"),
        liveness_probe=probe("live"),
        startup_probe=probe("start", period_seconds=3, failure_threshold=10),
    )
    bench.gives["start"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(10)
    assert bench.times("start") == [0, 3, 6, 9]
    assert bench.times("ready") == bench.times("live") == []
    assert bench.results == []
    bench.gives["start"] = ProbeOutcome.SUCCESS
    await bench.clock.run_for(3)
    assert bench.times("ready") == bench.times("live") == [12]
    assert (bench.last.startup, bench.last.readiness) == (True, True)
    await bench.clock.run_for(20)
    assert bench.times("start")[-1] == 12


async def test_a_failed_startup_probe_rests_until_another_unit(bench: Bench) -> None:
    container = Container(name="web", startup_probe=probe("start", period_seconds=1, failure_threshold=2))
    bench.gives["start"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(10)
    assert bench.times("start") == [0, 1]
    assert bench.last.startup is False
    bench.set.sync([bench.target(container, "u-1")])
    await bench.clock.run_for(0.5)
    assert bench.times("start") == [0, 1, 10]


async def test_a_failed_liveness_probe_rests_until_another_unit(bench: Bench) -> None:
    bench.gives["live"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(LIVE)])
    await bench.clock.run_for(30)
    assert bench.times("live") == [0, 5]
    assert bench.last == ProbeFacts(unit_id=UnitId("u-0"), liveness=False)
    bench.gives["live"] = ProbeOutcome.SUCCESS
    bench.set.sync([bench.target(LIVE, "u-1")])
    await bench.clock.run_for(1)
    assert bench.last == ProbeFacts(unit_id=UnitId("u-1"), liveness=True)


async def test_failures_warnings_and_errors_are_reported_as_the_kubelet_does(bench: Bench) -> None:
    bench.gives["ready"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(READY)])
    await bench.clock.run_for(1)
    bench.gives["ready"] = ProbeOutcome.WARNING
    await bench.clock.run_for(5)
    bench.gives["ready"] = ProbeOutcome.UNKNOWN
    await bench.clock.run_for(5)
    bench.gives["ready"] = ProbeOutcome.SUSPENDED
    await bench.clock.run_for(5)
    reported = [(e.type, e.reason, e.message) for e in bench.events.recorded]
    assert reported == [
        ("Warning", "Unhealthy", "Readiness probe failed: ready says so"),
        ("Warning", "ProbeWarning", "Readiness probe warning: ready says so"),
        ("Warning", "Unhealthy", "Readiness probe errored and resulted in unknown state: ready says so"),
    ]
    assert bench.events.recorded[0].ref == replace(REF, field="spec.containers{web}")


async def test_held_and_parked_units_are_not_asked_and_go_on_afterwards(bench: Bench) -> None:
    bench.set.sync([bench.target(LIVE)])
    await bench.clock.run_for(1)
    bench.set.sync([bench.target(LIVE, is_resting=True)])
    await bench.clock.run_for(60)
    assert bench.times("live") == [0]
    bench.set.sync([bench.target(LIVE)])
    await bench.clock.run_for(6)
    assert bench.times("live") == [0, 66], "liveness is probed one period after the unit runs again"


async def test_failures_from_before_a_freeze_do_not_count_after_it(bench: Bench) -> None:
    bench.gives["live"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(LIVE)])
    await bench.clock.run_for(1)
    bench.set.sync([bench.target(LIVE, is_resting=True)])
    await bench.clock.run_for(60)
    bench.set.sync([bench.target(LIVE)])
    await bench.clock.run_for(6)
    assert bench.times("live") == [0, 66]
    assert bench.results == [], "one failure before the freeze and one after it are not two in a row"
    await bench.clock.run_for(5)
    assert bench.last.liveness is False


async def test_readiness_begins_again_after_a_freeze_and_is_probed_at_once(bench: Bench) -> None:
    slow = Container(name="web", readiness_probe=probe("ready", period_seconds=60, success_threshold=1))
    bench.set.sync([bench.target(slow)])
    await bench.clock.run_for(1)
    assert bench.readiness() == [True]
    bench.set.sync([bench.target(slow, is_resting=True, known=bench.last)])
    assert bench.readiness() == [True, None]
    await bench.clock.run_for(3)
    bench.gives["ready"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(slow, known=bench.last)])
    await bench.clock.run_for(1)
    assert bench.times("ready") == [0, 4]
    assert bench.readiness() == [True, None]
    bench.gives["ready"] = ProbeOutcome.SUCCESS
    await bench.clock.run_for(60)
    assert bench.times("ready") == [0, 4, 64]
    assert bench.readiness() == [True, None, True]


async def test_a_value_that_a_thawed_unit_gets_again_is_not_logged_as_a_change(bench: Bench) -> None:
    container = Container(name="web", readiness_probe=probe("ready", period_seconds=1, failure_threshold=1))
    with structlog.testing.capture_logs() as lines:
        bench.set.sync([bench.target(container)])
        await bench.clock.run_for(1)
        for _ in range(3):
            bench.set.sync([bench.target(container, is_resting=True, known=bench.last)])
            bench.set.sync([bench.target(container, known=bench.last)])
            await bench.clock.run_for(1)
        bench.gives["ready"] = ProbeOutcome.FAILURE
        await bench.clock.run_for(2)
    assert [line["value"] for line in lines if line["log_level"] == "info"] == [True, False]


async def test_a_result_during_which_the_unit_was_frozen_and_thawed_does_not_count(bench: Bench) -> None:
    container = Container(name="web", liveness_probe=probe("live", failure_threshold=1, period_seconds=5))

    def freeze_and_thaw() -> None:
        bench.during = None
        bench.set.sync([bench.target(container, is_held=True)])
        bench.set.sync([bench.target(container)])

    bench.during = freeze_and_thaw
    bench.gives["live"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(1)
    assert (bench.results, bench.events.recorded) == ([], [])
    await bench.clock.run_for(5)
    assert bench.last.liveness is False


async def test_no_probe_runs_during_a_freeze_that_fails_and_values_stay(bench: Bench) -> None:
    bench.set.sync([bench.target(READY)])
    await bench.clock.run_for(1)
    bench.set.sync([bench.target(READY, is_held=True, known=bench.last)])
    await bench.clock.run_for(30)
    assert bench.times("ready") == [0]
    bench.set.sync([bench.target(READY, known=bench.last)])
    await bench.clock.run_for(1)
    assert bench.times("ready") == [0, 31]
    assert [one.readiness for one in bench.results] == [True]


async def test_a_startup_probe_still_comes_first_after_a_freeze(bench: Bench) -> None:
    container = Container(
        name="web",
        readiness_probe=probe("ready", period_seconds=5),
        liveness_probe=probe("live", period_seconds=5),
        startup_probe=probe("start", period_seconds=2, failure_threshold=2),
    )
    bench.gives["start"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(1)
    bench.set.sync([bench.target(container, is_resting=True)])
    await bench.clock.run_for(20)
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(1)
    assert bench.times("start") == [0, 21]
    assert bench.times("ready") == bench.times("live") == []
    assert not bench.results
    bench.gives["start"] = ProbeOutcome.SUCCESS
    await bench.clock.run_for(2)
    assert (bench.last.startup, bench.last.readiness) == (True, True)


async def test_a_freeze_after_a_command_delays_liveness_by_a_period_and_readiness_not_at_all(
    bench: Bench,
) -> None:
    container = replace(LIVE, readiness_probe=probe("ready", period_seconds=60, initial_delay_seconds=7))
    bench.set.sync([bench.target(container, delays_from_now=True)])
    await bench.clock.run_for(8)
    bench.set.sync([bench.target(container, is_stopping=True)])
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(2)
    bench.set.sync([bench.target(container, is_resting=True)])
    await bench.clock.run_for(10)
    bench.asked.clear()
    bench.set.sync([bench.target(container, started_at=bench.clock.now() - timedelta(seconds=20))])
    await bench.clock.run_for(6)
    assert bench.asked == [("ready", 20), ("live", 25)]


async def test_a_unit_that_was_held_while_it_was_asked_is_not_blamed(bench: Bench) -> None:
    container = Container(name="web", liveness_probe=probe("live", failure_threshold=1))
    bench.gives["live"] = ProbeOutcome.FAILURE
    bench.during = lambda: bench.set.sync([bench.target(container, is_resting=True)])
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(30)
    assert bench.times("live") == [0]
    assert bench.results == []
    assert bench.events.recorded == []


async def test_only_readiness_goes_on_while_the_pod_is_being_stopped(bench: Bench) -> None:
    container = Container(
        name="web",
        readiness_probe=probe("ready", period_seconds=5),
        liveness_probe=probe("live", period_seconds=5),
    )
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(1)
    bench.set.sync([bench.target(container, is_stopping=True)])
    bench.gives["ready"] = ProbeOutcome.FAILURE
    await bench.clock.run_for(20)
    assert bench.times("live") == [0]
    assert bench.times("ready") == [0, 5, 10, 15, 20]
    assert bench.last.readiness is False


async def test_probes_end_with_their_unit(bench: Bench) -> None:
    bench.set.sync([bench.target(READY)])
    await bench.clock.run_for(1)
    bench.set.sync([])
    await bench.clock.run_for(20)
    assert bench.times("ready") == [0]


async def test_after_a_restart_of_the_agent_the_first_question_is_spread_over_a_period(bench: Bench) -> None:
    bench.set.sync([bench.target(READY, was_ready=True, was_started=True)])
    await bench.clock.run_for(4)
    assert bench.times("ready") == [2.5]


async def test_after_a_restart_of_the_agent_one_failure_does_not_make_a_ready_unit_unready(
    bench: Bench,
) -> None:
    bench.gives["ready"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(READY, was_ready=True, was_started=True)])
    await bench.clock.run_for(9)
    assert len(bench.times("ready")) == 2
    assert bench.results == []
    await bench.clock.run_for(5)
    assert bench.last.readiness is False


async def test_after_a_restart_of_the_agent_a_started_unit_stays_started(bench: Bench) -> None:
    container = Container(name="web", startup_probe=probe("start"), readiness_probe=probe("ready"))
    bench.set.sync([bench.target(container, was_ready=False, was_started=True)])
    await bench.clock.run_for(6)
    assert bench.times("start") == []
    assert bench.times("ready") == [5]
    assert bench.last.startup is True


async def test_values_that_the_facts_lost_are_told_again(bench: Bench) -> None:
    bench.set.sync([bench.target(READY)])
    await bench.clock.run_for(1)
    assert len(bench.results) == 1
    bench.set.sync([bench.target(READY, known=bench.results[0])])
    assert len(bench.results) == 1
    bench.set.sync([bench.target(READY, known=None)])
    assert len(bench.results) == 2


async def test_a_bug_in_a_probe_does_not_end_it(bench: Bench) -> None:
    bench.during = lambda: [][0]  # noqa: PLE0643 - the bug
    bench.set.sync([bench.target(READY)])
    await bench.clock.run_for(1)
    bench.during = None
    await bench.clock.run_for(5)
    assert bench.last.readiness is True


async def test_an_idle_probe_costs_one_sleeper(bench: Bench) -> None:
    bench.set.sync([bench.target(Container(name=f"c{i}", readiness_probe=probe("r"))) for i in range(10)])
    await bench.clock.run_for(1)
    assert bench.clock.sleepers == 10
    assert len(asyncio.all_tasks()) == 11


async def test_probes_that_rested_while_a_command_held_the_unit_go_on_after_it(bench: Bench) -> None:
    container = Container(
        name="web",
        liveness_probe=probe("live", period_seconds=5, failure_threshold=2),
        startup_probe=probe("start", period_seconds=1),
    )
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(6)
    assert bench.times("live") == [0, 5]
    bench.set.sync([bench.target(container, is_stopping=True)])
    await bench.clock.run_for(10)
    assert bench.times("live") == [0, 5]
    bench.gives["live"] = ProbeOutcome.FAILURE
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(30)
    assert bench.times("live") == [0, 5, 16, 21]
    assert bench.last.liveness is False
    assert bench.times("start") == [0]
    bench.set.sync([bench.target(container, is_stopping=True, known=bench.last)])
    bench.set.sync([bench.target(container, known=bench.last)])
    await bench.clock.run_for(30)
    assert bench.times("live")[-1] == 21, "one that has failed its unit rests until another unit"


async def test_after_a_command_that_held_the_unit_a_probe_waits_as_after_a_start(bench: Bench) -> None:
    container = Container(
        name="web", liveness_probe=probe("live", period_seconds=5, initial_delay_seconds=30)
    )
    bench.set.sync([bench.target(container)])
    await bench.clock.run_for(36)
    assert bench.times("live") == [30, 35]
    bench.set.sync([bench.target(container, is_stopping=True)])
    bench.set.sync([bench.target(container)])  # a reboot by command: the guest has just begun to boot
    await bench.clock.run_for(36)
    assert bench.times("live") == [30, 35, 66, 71]
