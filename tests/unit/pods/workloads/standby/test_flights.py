"""Standby with calls in flight: random histories of requests, answers, lost answers, exits and restarts, on the plan.

The effect of a call and its answer have separate times. A call whose deadline passed may take effect at any later
time, or never; so may a hibernation that was cancelled, and the runtime may also ignore the cancellation and answer. The plan
reads the state at its last look.
"""

from __future__ import annotations

import enum

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import Conflict, KubeletxError, TimedOut, Unavailable, UnitState, Unsupported, names
from kubeletx.kube.types.core import Container, Probe
from kubeletx.pods.model import actions as act
from kubeletx.pods.model import results
from kubeletx.pods.model.draft import Plan
from kubeletx.pods.model.facts import ProbeFacts
from kubeletx.pods.model.repeats import count_done
from kubeletx.pods.plan.pod import plan_pod
from kubeletx.pods.steps.context import after_error
from kubeletx.pods.workloads.overrides import PodOverrides
from kubeletx.pods.workloads.power import Power
from kubeletx.pods.workloads.standby.actions import SetStandby, StandbyStep
from kubeletx.pods.workloads.standby.facts import StandbyFacts
from kubeletx.pods.workloads.standby.plan import settled, wanted_power
from kubeletx.pods.workloads.standby.results import StandbySet, standby_failed
from tests.unit.pods.pod_model import AgentRestarted, Observed, PodModel, make_pod

NAMES = ("a", "b", "s0", "s1")
SIDECARS = tuple(Container(name=name, image="i", restart_policy="Always") for name in ("s0", "s1"))
AFTER = {
    StandbyStep.FREEZE: UnitState.PAUSED,
    StandbyStep.HIBERNATE: UnitState.SUSPENDED,
    StandbyStep.THAW: UnitState.RUNNING,
}
TARGETS = {
    Power.RUNNING: UnitState.RUNNING,
    Power.STANDBY: UnitState.PAUSED,
    Power.HIBERNATED: UnitState.SUSPENDED,
}
ROUNDS = 150
"""Rounds of plan and answers after which a pod on a sane runtime has reached its state."""


class Answer(enum.Enum):
    """How a call ends. The first word is its effect on the runtime, the second what the agent reads."""

    DONE = "done, answered"
    DONE_FAILED = "done, answered with an error"
    DONE_SILENT = "done, no answer"
    DONE_LOST = "done, the connection was lost"
    NOT_FAILED = "not done, answered with an error"
    NOT_ABLE = "not done, the runtime has no standby at this moment"
    NOT_SILENT = "not done, no answer"
    LATER_SILENT = "done later, no answer"
    CANCELLED = "not done or undone, cancelled"
    DONE_CANCELLED = "done, cancelled"
    LATER_CANCELLED = "done later, cancelled"

    @property
    def is_cancelled(self) -> bool:
        return self.name.endswith("CANCELLED")

    @property
    def error(self) -> KubeletxError | None:
        if self is Answer.DONE:
            return None
        if self is Answer.DONE_LOST:
            return Unavailable("connection lost")
        if self is Answer.NOT_ABLE:
            return Unsupported("no standby now")
        return TimedOut("no answer") if self.name.endswith("SILENT") else Conflict("it failed")


class FlightModel(PodModel):
    """A pod of two containers, one with a readiness probe, and two sidecars, on a runtime with calls in flight."""

    def __init__(self) -> None:
        super().__init__(make_pod(("a", "b"), init=SIDECARS))
        first, second = self.desired.pod.spec.containers
        containers = (replace(first, readiness_probe=Probe(period_seconds=1)), second)
        spec = replace(self.desired.pod.spec, containers=containers)
        self.desired = replace(self.desired, pod=replace(self.desired.pod, spec=spec))
        self.calls: dict[str, act.Action] = {}
        self.cancelled: set[str] = set()
        """Keys of calls that the plan has cancelled; those still in flight may end with any answer."""
        self.late: list[SetStandby] = []
        """Calls that the agent abandoned and that may still take effect."""
        self.written = ""
        self.seen = self.snapshot()

    # --- the worker ---

    def turn(self) -> Plan:
        self.facts = replace(
            self.facts,
            own=settled(self.desired.pod, self.facts, self.facts.of(StandbyFacts) or StandbyFacts()),
        )
        self.facts = Observed(self.seen if self.facts.runtime is not None else None, self.now()).onto(
            self.facts
        )
        stops = {one.name: self.mono + 30 for one in self.calls.values() if isinstance(one, act.StopUnit)}
        revocable = frozenset(key for key, one in self.calls.items() if one.revocable)
        self.facts = replace(self.facts, in_flight=frozenset(self.calls), revocable=revocable, stopping=stops)
        plan = plan_pod(self.desired, self.facts, self.now())
        for key in plan.cancels:
            call = self.calls[key]
            assert isinstance(call, SetStandby)
            assert call.step == StandbyStep.HIBERNATE.value, "freezes and thaws take milliseconds"
            self.cancelled.add(key)
        for action in plan.actions:
            self.begin(action)
        self.finished = plan.finished
        self.mono += 0.001
        return plan

    def begin(self, action: act.Action) -> None:
        self.journal.append(action)
        assert action.key not in self.calls
        if isinstance(action, SetStandby | act.StopUnit):
            units = [one.unit_id for one in self.calls.values() if isinstance(one, SetStandby | act.StopUnit)]
            assert action.unit_id not in units, "one call at a time changes a unit"
            if isinstance(action, SetStandby) and action.step != StandbyStep.THAW.value:
                is_stopping = any(isinstance(one, act.StopUnit) for one in self.calls.values())
                assert not is_stopping, "a preStop hook may need the other containers"
            self.calls[action.key] = action
        elif isinstance(action, act.Look):
            self.facts = replace(self.facts, look_wanted_at=None)
            self.seen = self.snapshot()
        elif isinstance(action, act.ReadOverrides):
            self.facts = replace(self.facts, overrides=PodOverrides(power=self.written))
        else:
            self.finish(action, self._carry_out(action))
            self.seen = self.snapshot()

    def finish(self, action: act.Action, result: results.Result, *, was_cancelled: bool = False) -> int:
        facts = results.apply(self.facts, result, self.now())
        self.facts, done = count_done(facts, action, self.now(), was_cancelled=was_cancelled)
        return done

    # --- the runtime ---

    def answer(self, key: str, answer: Answer) -> None:
        """End the call with this key."""
        action = self.calls.pop(key)
        was_cancelled = key in self.cancelled
        self.cancelled.discard(key)
        if answer.is_cancelled and not was_cancelled:
            answer = Answer.DONE
        if isinstance(action, act.StopUnit):
            self.finish(action, self._carry_out(action))
            self.seen = self.snapshot()
            return
        assert isinstance(action, SetStandby)
        if answer is Answer.NOT_ABLE and action.step != StandbyStep.THAW.value:
            # A freeze that the runtime cannot do is not tried again; see test_plan.py.
            answer = Answer.NOT_FAILED
        if answer in (Answer.LATER_SILENT, Answer.LATER_CANCELLED):
            self.late.append(action)
        is_there = self.take_effect(action) if answer.name.startswith("DONE") else True
        error = answer.error
        if not is_there or answer.is_cancelled:
            self.finish(action, results.LookNeeded(), was_cancelled=answer.is_cancelled)
        elif error is None:
            self.note(action)
            self.finish(action, StandbySet(action.name, action.step, self.mono, self.mono))
        else:
            failed = standby_failed(action, error)
            self.finish(action, after_error(error, self.now(), failed))

    def take_effect(self, action: SetStandby) -> bool:
        """Change the unit's state; False if it does not run any more."""
        found = [u for u in self.units if u.summary.id == action.unit_id and u.summary.state.is_alive]
        if found:
            self._replace(action.unit_id, AFTER[StandbyStep(action.step)], 0)
        return bool(found)

    def note(self, action: SetStandby) -> None:
        """Update what is known of this unit; all else is as old as the last look."""
        (now,) = [u for u in self.units if u.summary.id == action.unit_id]
        units = tuple(now.summary if one.id == action.unit_id else one for one in self.seen.units)
        self.seen = replace(self.seen, units=units, statuses={**self.seen.statuses, action.unit_id: now})

    def event(self) -> None:
        """The runtime reports a change: the worker looks."""
        self.facts = replace(self.facts, look_wanted_at=self.mono)

    def restart(self) -> None:
        """The agent ends and starts; its calls are still on the way."""
        self.late += [one for one in self.calls.values() if isinstance(one, SetStandby)]
        self.calls.clear()
        self.cancelled.clear()
        self.facts = AgentRestarted().onto(self.facts)
        self.seen = self.snapshot()

    # --- inputs ---

    def ask(self, power: Power | None, owner: str = "sessions") -> None:
        self.facts = results.apply(
            self.facts, results.PowerAsked(owner, power.value if power is not None else ""), self.now()
        )

    def write(self, power: str) -> None:
        self.written = power
        if self.facts.overrides is not None:
            self.facts = replace(self.facts, overrides=PodOverrides(power=power))

    def annotate(self, word: str) -> None:
        before = self.desired.pod
        after = replace(
            before, metadata=replace(before.metadata, annotations={names.STANDBY: word} if word else {})
        )
        self.desired = replace(self.desired, pod=after)
        self.facts = results.apply(self.facts, results.PodEdited(before, after), self.now())

    def redefine(self) -> None:
        """Edit container b: its unit is stopped, and a new one is started."""
        before = self.desired.pod
        first, second = before.spec.containers
        second = replace(second, image=f"{second.image}i")
        after = replace(before, spec=replace(before.spec, containers=(first, second)))
        self.desired = replace(self.desired, pod=after)
        self.facts = results.apply(self.facts, results.PodEdited(before, after), self.now())

    def probe(self, is_ready: bool) -> None:
        unit = next((one for one in self.seen.units if one.name == "a"), None)
        if unit is not None and unit.state is UnitState.RUNNING:
            probes = ProbeFacts(unit_id=unit.id, readiness=is_ready)
            self.facts = results.apply(self.facts, results.Probed("a", probes), self.now())

    # --- what a test does and reads ---

    def states(self) -> dict[str, UnitState]:
        return {u.summary.name: u.summary.state for u in reversed(self.units) if u.summary.state.is_alive}

    def calm(self) -> None:
        """From now on the runtime is sane: every call is done and answered, or undone if it was cancelled."""
        for action in self.late:
            self.take_effect(action)
        self.late.clear()
        self.event()
        for _ in range(ROUNDS):
            self.probe(True)
            plan = self.turn()
            for key in list(self.calls):
                self.answer(key, Answer.CANCELLED)
            if plan.actions or plan.cancels:
                continue
            if plan.wake_at is None:
                return
            self.mono = max(self.mono, plan.wake_at)
        raise AssertionError(f"not at rest after {ROUNDS} rounds: {self.journal[-8:]}")

    def check_rest(self) -> None:
        """At rest all containers run, or all are frozen."""
        states = self.states()
        assert set(states) == set(NAMES), states
        assert len(set(states.values())) == 1, states


def a_pod() -> FlightModel:
    model = FlightModel()
    model.calm()
    model.check_rest()
    return model


POWERS = st.sampled_from([Power.RUNNING, Power.STANDBY, Power.HIBERNATED, None])
EVENTS = st.one_of(
    st.tuples(st.just("ask"), POWERS),
    st.tuples(st.just("wake"), st.booleans()),
    st.tuples(st.just("write"), st.sampled_from(["", "running", "standby", "hibernated"])),
    st.tuples(st.just("annotate"), st.sampled_from(["", "standby", "hibernated"])),
    st.tuples(st.just("turn"), st.integers(1, 3)),
    st.tuples(st.just("turn"), st.integers(1, 3)),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 3), st.sampled_from(Answer))),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 3), st.sampled_from(Answer))),
    st.tuples(st.just("answer"), st.tuples(st.integers(0, 3), st.just(Answer.DONE))),
    st.tuples(st.just("late"), st.booleans()),
    st.tuples(st.just("wait"), st.floats(0.01, 20.0)),
    st.tuples(st.just("exit"), st.sampled_from(NAMES)),
    st.tuples(st.just("probe"), st.booleans()),
    st.tuples(st.just("redefine"), st.none()),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("lose"), st.none()),
)


def play(model: FlightModel, events: list[tuple[str, object]]) -> None:
    for event, detail in events:
        if not ask(model, event, detail):
            happen(model, event, detail)


def ask(model: FlightModel, event: str, detail: object) -> bool:
    """Make a request of a user or of the agent; False if the event is something else."""
    match event, detail:
        case "ask", Power() | None as power:
            model.ask(power)
        case "wake", bool() as wakes:
            model.ask(Power.RUNNING if wakes else None, owner="stream")
        case "write", str() as word:
            model.write(word)
        case "annotate", str() as word:
            model.annotate(word)
        case "redefine", _:
            model.redefine()
        case _:
            return False
    return True


def happen(model: FlightModel, event: str, detail: object) -> None:
    """Let time pass, the agent plan or restart, or the runtime do something."""
    match event, detail:
        case "turn", int() as turns:
            for _ in range(turns):
                model.turn()
        case "answer", (int() as number, Answer() as answer) if model.calls:
            keys = sorted(model.calls)
            model.answer(keys[number % len(keys)], answer)
        case "late", bool() as is_done if model.late:
            call = model.late.pop(0)
            if is_done and model.take_effect(call):
                model.event()
        case "wait", float() as seconds:
            model.mono += seconds
        case "exit", str() as name:
            model.exit(name, 1)
            model.event()
        case "probe", bool() as is_ready:
            model.probe(is_ready)
        case "restart", _:
            model.restart()
        case "lose", _:
            model.lose_sandbox()
            model.seen = model.snapshot()


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENTS, min_size=4, max_size=30))
def test_a_pod_reaches_the_state_that_is_wanted_whatever_happened_to_calls(
    events: list[tuple[str, object]],
) -> None:
    model = a_pod()
    model.ask(Power.STANDBY)
    model.turn()
    play(model, events)
    model.calm()
    model.check_rest()
    wanted = wanted_power(model.desired, model.facts)
    assert set(model.states().values()) == {TARGETS[wanted]}


@settings(max_examples=150, deadline=None)
@given(
    st.lists(EVENTS, min_size=4, max_size=30),
    st.sampled_from([Power.STANDBY, Power.HIBERNATED]),
    st.booleans(),
)
@example([("answer", (0, Answer.NOT_ABLE))], Power.STANDBY, True)
def test_a_race_of_a_freeze_and_a_wake_ends_awake(
    events: list[tuple[str, object]], power: Power, is_frozen: bool
) -> None:
    model = a_pod()
    model.ask(power)
    if is_frozen:
        model.calm()
        model.ask(Power.RUNNING)
    model.turn()
    play(model, events)
    model.ask(Power.RUNNING, owner="the last one")
    model.calm()
    model.check_rest()
    assert set(model.states().values()) == {UnitState.RUNNING}


@settings(max_examples=100, deadline=None)
@given(st.lists(EVENTS, min_size=4, max_size=25))
def test_a_deleted_pod_ends_whatever_is_in_flight(events: list[tuple[str, object]]) -> None:
    model = a_pod()
    play(model, events)
    model.delete()
    model.calm()
    assert model.finished
    assert not model.units


def test_a_sidecar_whose_freeze_ends_during_a_stop_is_thawed_at_once() -> None:
    model = a_pod()
    model.ask(Power.STANDBY)
    model.turn()
    for name in ("a", "b"):
        model.answer(f"unit/{name}", Answer.DONE)
    model.turn()
    assert list(model.calls) == ["unit/s1"]
    model.delete()
    model.turn()
    assert set(model.calls) == {"unit/a", "unit/b", "unit/s1"}
    model.answer("unit/s1", Answer.DONE)
    model.turn()
    call = model.calls["unit/s1"]
    assert isinstance(call, SetStandby)
    assert call.step == StandbyStep.THAW.value


@pytest.mark.parametrize("answer", Answer)
@pytest.mark.parametrize("was_frozen", [False, True])
@pytest.mark.parametrize("wakes", ["request", "command", "annotation", "freeze"])
def test_a_hibernation_in_flight_is_cancelled_by_each_request_nearer_to_running(
    wakes: str, was_frozen: bool, answer: Answer
) -> None:
    model = a_pod()
    model.annotate("standby" if was_frozen else "")
    model.calm()
    model.annotate("hibernated")
    model.turn()
    assert set(model.calls) == {"unit/a", "unit/b"}
    assert model.turn().cancels == (), "it is still wanted"
    match wakes:
        case "request":
            model.ask(Power.RUNNING)
        case "command":
            model.facts = replace(model.facts, overrides=PodOverrides(power="running"))
        case "annotation":
            model.annotate("")
        case "freeze":
            model.annotate("standby")
    assert model.turn().cancels == ("unit/a", "unit/b")
    for key in ("unit/a", "unit/b"):
        model.answer(key, answer)
    model.calm()
    wanted = UnitState.PAUSED if wakes == "freeze" else UnitState.RUNNING
    assert model.states() == dict.fromkeys(NAMES, wanted)


@pytest.mark.parametrize("answer", Answer)
def test_a_hibernation_in_flight_is_cancelled_by_the_deletion_of_its_pod(answer: Answer) -> None:
    model = a_pod()
    model.ask(Power.HIBERNATED)
    model.turn()
    model.delete()
    assert model.turn().cancels == ("unit/a", "unit/b")
    for key in ("unit/a", "unit/b"):
        model.answer(key, answer)
    model.calm()
    assert model.finished
    assert not model.units


def test_the_stop_of_one_container_cancels_all_hibernations_of_its_pod() -> None:
    model = a_pod()
    model.ask(Power.HIBERNATED)
    model.turn()
    model.redefine()
    assert model.turn().cancels == ("unit/a", "unit/b")


def test_a_freeze_and_a_thaw_in_flight_are_not_cancelled() -> None:
    model = a_pod()
    model.ask(Power.STANDBY)
    model.turn()
    model.ask(Power.RUNNING)
    assert model.turn().cancels == ()
    model.calm()
    model.ask(Power.HIBERNATED)
    model.calm()
    model.ask(Power.STANDBY)
    model.turn()
    model.ask(Power.HIBERNATED)
    assert {one.step for one in model.calls.values() if isinstance(one, SetStandby)} == {"thaw"}
    assert model.turn().cancels == ()


def test_hibernations_that_a_flapping_readiness_cancels_are_repeated_with_delays() -> None:
    model = a_pod()
    model.ask(Power.HIBERNATED)
    began = model.mono
    for _ in range(200):
        model.probe(True)
        model.turn()
        model.probe(False)
        model.turn()
        for key in list(model.calls):
            model.answer(key, Answer.CANCELLED)
        model.turn()
    hibernations = [one for one in model.journal if isinstance(one, SetStandby) and one.name == "a"]
    assert model.mono - began < 2
    assert len(hibernations) < 10
    result = StandbySet("a", StandbyStep.HIBERNATE.value, model.mono, model.mono)
    assert model.finish(hibernations[-1], result) == 1, "the cancelled ones do not count as without effect"
