"""Standby of a pod: all units rest or none, app containers first, and a pod that is wanted awake ends awake."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import UnitState, names
from kubeletx.kube.types.core import Container, Lifecycle, LifecycleHandler, Probe
from kubeletx.pods.model import actions as act
from kubeletx.pods.model import results
from kubeletx.pods.model.draft import Plan
from kubeletx.pods.model.facts import HookState, ProbeFacts
from kubeletx.pods.model.results import Nothing, Result
from kubeletx.pods.workloads.overrides import PodOverrides
from kubeletx.pods.workloads.power import Power, strongest
from kubeletx.pods.workloads.standby.actions import SetStandby, StandbyStep
from kubeletx.pods.workloads.standby.facts import StandbyFacts
from kubeletx.pods.workloads.standby.plan import wanted_power
from kubeletx.pods.workloads.standby.results import StandbyFailed, StandbySet
from tests.unit.pods.pod_model import PodModel, make_pod

SIDECARS = tuple(Container(name=name, image="i", restart_policy="Always") for name in ("s0", "s1"))
AFTER = {
    StandbyStep.FREEZE: UnitState.PAUSED,
    StandbyStep.HIBERNATE: UnitState.SUSPENDED,
    StandbyStep.THAW: UnitState.RUNNING,
}


class StandbyModel(PodModel):
    """A pod on a runtime that freezes. `written`: its order on the disk. `refuses`: containers that do not freeze."""

    written = ""
    refuses: frozenset[str] = frozenset()

    def turn(self) -> Plan:
        if self.facts.of(StandbyFacts) is None:
            self.facts = replace(self.facts, own=StandbyFacts())
        return super().turn()

    def ask(self, power: Power | None, owner: str = "sessions") -> None:
        self.apply(results.PowerAsked(owner, power.value if power is not None else ""), None)

    def write(self, power: str) -> None:
        self.written = power
        self.facts = replace(self.facts, overrides=PodOverrides(power=power))

    def states(self) -> dict[str, UnitState]:
        return {u.summary.name: u.summary.state for u in reversed(self.units) if u.summary.state.is_alive}

    def steps(self) -> list[tuple[str, str]]:
        return [(one.step, one.name) for one in self.journal if isinstance(one, SetStandby)]

    def calm(self) -> None:
        """Settle, and let back-offs and pauses of the plan pass until nothing more happens."""
        for _ in range(80):
            plan = self.settle()
            if plan.wake_at is None or plan.finished:
                return
            self.mono = max(self.mono, plan.wake_at)
        raise AssertionError(f"never calm: {self.journal[-6:]}")

    def _carry_out(self, action: act.Action) -> Result:
        match action:
            case act.Look():
                self.facts = replace(self.facts, look_wanted_at=None)
            case act.ReadOverrides():
                self.facts = replace(self.facts, overrides=PodOverrides(power=self.written))
                return Nothing()
            case SetStandby(name=name, unit_id=unit_id, step=step):
                if name in self.refuses and step != StandbyStep.THAW.value:
                    return StandbyFailed(name, step, "Error", "it failed", may_heal=False)
                (unit,) = [u for u in self.units if u.summary.id == unit_id]
                assert unit.summary.state.is_alive
                state = AFTER[StandbyStep(step)]
                assert unit.summary.state is not state, "a step changes something"
                self._replace(unit_id, state, 0)
                return StandbySet(name, step, self.mono, self.mono)
        return super()._carry_out(action)


def a_pod(**spec: object) -> StandbyModel:
    model = StandbyModel(make_pod(("a", "b"), init=SIDECARS, **spec))  # type: ignore[arg-type]
    model.calm()
    return model


def rests(model: StandbyModel) -> set[UnitState]:
    return set(model.states().values())


def test_app_containers_rest_first_and_sidecars_from_the_last_one_and_all_come_back_in_reverse() -> None:
    model = a_pod()
    model.ask(Power.STANDBY)
    model.calm()
    assert model.steps() == [("freeze", "a"), ("freeze", "b"), ("freeze", "s1"), ("freeze", "s0")]
    assert rests(model) == {UnitState.PAUSED}
    model.journal.clear()
    model.ask(Power.RUNNING)
    model.calm()
    assert [name for _, name in model.steps()] == ["s0", "s1", "b", "a"]
    assert rests(model) == {UnitState.RUNNING}


def test_a_frozen_pod_hibernates_and_a_hibernated_one_is_thawed_before_it_is_frozen() -> None:
    model = a_pod()
    for power, state in (
        (Power.STANDBY, UnitState.PAUSED),
        (Power.HIBERNATED, UnitState.SUSPENDED),
        (Power.STANDBY, UnitState.PAUSED),
    ):
        model.ask(power)
        model.calm()
        assert rests(model) == {state}
    assert ("thaw", "a") in model.steps()


def test_the_strongest_of_all_requests_wins_and_a_withdrawn_one_does_not_count() -> None:
    model = a_pod()
    model.write("hibernated")
    assert wanted_power(model.desired, model.facts) is Power.HIBERNATED
    model.ask(Power.STANDBY)
    assert wanted_power(model.desired, model.facts) is Power.STANDBY
    model.ask(Power.RUNNING, owner="operator")
    assert wanted_power(model.desired, model.facts) is Power.RUNNING
    model.ask(None, owner="operator")
    model.ask(None)
    assert wanted_power(model.desired, model.facts) is Power.HIBERNATED
    assert strongest([]) is Power.RUNNING


def test_the_written_order_is_read_again_after_a_restart_and_requests_in_memory_are_gone() -> None:
    model = a_pod()
    model.write("standby")
    model.ask(Power.RUNNING)
    model.calm()
    assert rests(model) == {UnitState.RUNNING}
    model.restart_agent()
    model.calm()
    assert rests(model) == {UnitState.PAUSED}
    model.restart_agent()
    model.journal.clear()
    model.calm()
    assert model.steps() == [], "what rests is left at rest until the order is read"


def test_nothing_rests_before_hooks_startup_and_readiness_have_passed() -> None:
    model = StandbyModel(make_pod(("a",)))
    probe = Probe(period_seconds=1)
    hooked = Container(
        name="web",
        image="i",
        lifecycle=Lifecycle(post_start=LifecycleHandler()),
        startup_probe=probe,
        readiness_probe=probe,
    )
    spec = replace(model.desired.pod.spec, containers=(*model.desired.pod.spec.containers, hooked))
    model.desired = replace(model.desired, pod=replace(model.desired.pod, spec=spec))
    model.calm()
    (unit,) = [u.summary for u in model.units if u.summary.name == "web"]
    model.ask(Power.STANDBY)
    for hook, startup, readiness in (
        (HookState.RUNNING, None, False),
        (HookState.DONE, None, False),
        (HookState.DONE, True, False),
    ):
        model.apply(results.HookNoted("web", unit.id, hook), None)
        probes = ProbeFacts(unit_id=unit.id, startup=startup, readiness=readiness)
        model.apply(results.Probed("web", probes), None)
        model.calm()
        assert rests(model) == {UnitState.RUNNING}
    model.apply(results.Probed("web", replace(probes, readiness=True)), None)
    model.calm()
    assert rests(model) == {UnitState.PAUSED}


def test_one_container_that_cannot_freeze_keeps_the_whole_pod_awake() -> None:
    model = a_pod()
    model.refuses = frozenset({"s0"})
    model.ask(Power.STANDBY)
    model.calm()
    assert rests(model) == {UnitState.RUNNING}
    model.refuses = frozenset()
    model.apply(results.PodEdited(model.desired.pod, model.desired.pod), None)
    model.calm()
    assert rests(model) == {UnitState.PAUSED}


def test_a_container_that_dies_while_the_pod_rests_is_started_and_the_pod_rests_again() -> None:
    model = a_pod()
    model.ask(Power.STANDBY)
    model.calm()
    model.exit("b", 1)
    model.settle()
    model.calm()
    assert rests(model) == {UnitState.PAUSED}
    assert set(model.states()) == {"a", "b", "s0", "s1"}
    assert ("thaw", "s0") in model.steps(), "the pod does not stay partly at rest while b starts"


def test_a_deleted_pod_is_neither_frozen_nor_thawed_by_the_plan() -> None:
    model = a_pod()
    model.ask(Power.STANDBY)
    model.delete()
    model.calm()
    assert model.finished
    assert model.steps() == []


def annotate(model: StandbyModel, word: str) -> None:
    """Edit the pod's annotation kubeletx.io/standby; an empty word removes it."""
    before = model.desired.pod
    notes = {names.STANDBY: word} if word else {}
    after = replace(before, metadata=replace(before.metadata, annotations=notes))
    model.desired = replace(model.desired, pod=after)
    model.apply(results.PodEdited(before, after), None)


def test_a_command_s_request_replaces_the_annotation_and_a_request_in_memory_only_wakes() -> None:
    model = a_pod()
    annotate(model, "hibernated")
    model.calm()
    assert rests(model) == {UnitState.SUSPENDED}
    model.write("running")
    model.ask(Power.HIBERNATED)
    model.calm()
    assert rests(model) == {UnitState.RUNNING}
    model.write("")
    model.calm()
    assert rests(model) == {UnitState.SUSPENDED}
    model.ask(Power.RUNNING)
    model.calm()
    assert rests(model) == {UnitState.RUNNING}


EVENTS = st.one_of(
    st.tuples(st.just("annotate"), st.sampled_from(["", "standby", "hibernated"])),
    st.tuples(st.just("wake"), st.booleans()),
    st.tuples(st.just("ask"), st.sampled_from([Power.RUNNING, Power.STANDBY, Power.HIBERNATED, None])),
    st.tuples(st.just("write"), st.sampled_from(["", "running", "standby", "hibernated", "paused"])),
    st.tuples(st.just("kill"), st.sampled_from(["a", "b", "s0", "s1"])),
    st.tuples(st.just("turn"), st.integers(1, 4)),
    st.tuples(st.just("restart"), st.none()),
    st.tuples(st.just("lose"), st.none()),
)


@given(st.lists(EVENTS, max_size=14))
def test_a_pod_rests_as_a_whole_or_not_at_all_and_ends_as_it_is_wanted(
    events: list[tuple[str, object]],
) -> None:
    model = a_pod()
    for event, detail in events:
        match event, detail:
            case "ask", Power() | None as power:
                model.ask(power)
            case "annotate", str() as word:
                annotate(model, word)
            case "wake", bool() as wakes:
                model.ask(Power.RUNNING if wakes else None, owner="stream")
            case "write", str() as word:
                model.write(word)
            case "kill", str() as name:
                model.exit(name, 1)
            case "turn", int() as turns:
                for _ in range(turns):
                    model.turn()
            case "restart", _:
                model.restart_agent()
            case "lose", _:
                model.lose_sandbox()
    model.calm()
    wanted = wanted_power(model.desired, model.facts)
    state = {Power.RUNNING: UnitState.RUNNING, Power.STANDBY: UnitState.PAUSED}.get(
        wanted, UnitState.SUSPENDED
    )
    assert rests(model) == {state}
    assert set(model.states()) == {"a", "b", "s0", "s1"}
    model.ask(Power.RUNNING, owner="wake")
    model.calm()
    assert rests(model) == {UnitState.RUNNING}
