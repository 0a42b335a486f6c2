"""Random histories of a machine: commands of both families, powerSpec, annotation, requests in memory, holds, restarts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import UnitState, names
from kubeletx.pods.model import actions as act
from kubeletx.pods.model import results
from kubeletx.pods.model.draft import Plan
from kubeletx.pods.model.results import Nothing, Result
from kubeletx.pods.workloads.machine.actions import SetPower
from kubeletx.pods.workloads.machine.facts import MachineFacts
from kubeletx.pods.workloads.machine.power import PowerStep, initial_power, wanted_power
from kubeletx.pods.workloads.machine.results import PowerSet
from kubeletx.pods.workloads.overrides import PodOverrides, with_power
from kubeletx.pods.workloads.power import STANDING_BY, Power
from kubeletx.pods.workloads.standby.actions import SetStandby, StandbyStep
from kubeletx.pods.workloads.standby.results import StandbySet
from tests.unit.pods.pod_model import PodModel, make_pod
from tests.unit.pods.workloads.machine.test_standby import AFTER, ENDS

SPEC = {"Running": Power.RUNNING, "Paused": Power.PAUSED, "Suspended": Power.SUSPENDED, "Shutdown": Power.OFF}
HELD = (Power.PAUSED, Power.SUSPENDED, Power.OFF)


class MachineModel(PodModel):
    """A machine on a runtime with every power verb and standby. `written`: its overrides on the disk."""

    def __init__(self) -> None:
        super().__init__(make_pod(("guest",)))
        self.written = PodOverrides()
        self.note("kubeletx.io/workload-type", "vm")

    def turn(self) -> Plan:
        if self.facts.of(MachineFacts) is None:
            self.facts = replace(self.facts, own=MachineFacts(can_power=True, can_standby=True))
        return super().turn()

    def note(self, key: str, value: str) -> None:
        """Edit one annotation; an empty value removes it."""
        before = self.desired.pod
        notes = {one: text for one, text in before.metadata.annotations.items() if one != key}
        notes |= {key: value} if value else {}
        after = replace(before, metadata=replace(before.metadata, annotations=notes))
        self.desired = replace(self.desired, pod=after)
        self.apply(results.PodEdited(before, after), None)

    def amend(self, overrides: PodOverrides) -> None:
        self.written = overrides
        if self.facts.overrides is not None:
            self.facts = replace(self.facts, overrides=overrides)

    def command(self, power: Power) -> None:
        """A command of either family."""
        spec = self.desired.pod.metadata.annotations.get(names.VM_POWER, "Running")
        self.amend(with_power(self.written, power.value, initial_power(self.desired).value, spec))

    def ask(self, power: Power | None, owner: str = "sessions") -> None:
        self.apply(results.PowerAsked(owner, power.value if power is not None else ""), None)

    @property
    def state(self) -> UnitState:
        return max(self.units, key=lambda unit: unit.summary.attempt).summary.state

    @property
    def is_held(self) -> bool:
        """Whether the guest paused itself."""
        return any(u.reason == "DiskFull" and u.summary.state is UnitState.PAUSED for u in self.units)

    def hold(self) -> None:
        self.units = [
            replace(u, summary=replace(u.summary, state=UnitState.PAUSED), reason="DiskFull")
            if u.summary.state is UnitState.RUNNING
            else u
            for u in self.units
        ]

    def calm(self) -> None:
        """Settle, and let back-offs pass until nothing more happens."""
        for _ in range(80):
            plan = self.settle()
            if plan.wake_at is None or plan.finished:
                return
            self.mono = max(self.mono, plan.wake_at)
        raise AssertionError(f"never calm: {self.journal[-6:]}")

    def _change(self, unit_id: str, state: UnitState) -> None:
        (unit,) = [u for u in self.units if u.summary.id == unit_id]
        assert unit.summary.state is not state, "a call changes something"
        assert not (self.is_held and state is UnitState.RUNNING), "a guest that paused itself is not resumed"
        self._replace(unit.summary.id, state, 0)
        self.units = [replace(u, reason="") if u.summary.id == unit_id else u for u in self.units]

    def _carry_out(self, action: act.Action) -> Result:
        match action:
            case act.Look():
                self.facts = replace(self.facts, look_wanted_at=None)
            case act.ReadOverrides():
                self.facts = replace(self.facts, overrides=self.written)
                return Nothing()
            case act.DropOverride():
                self.amend(replace(self.written, power="", power_spec=""))
                return Nothing()
            case SetStandby(name=name, unit_id=unit_id, step=step):
                self._change(unit_id, AFTER[StandbyStep(step)])
                return StandbySet(name, step, self.mono, self.mono)
            case SetPower(name=name, unit_id=unit_id, step=step):
                if step == PowerStep.POWER_OFF.value:
                    self.amend(replace(self.written, off_unit=unit_id))
                if step == PowerStep.START.value:
                    self.amend(replace(self.written, off_unit=""))
                self._change(unit_id, {**AFTER, PowerStep.START: UnitState.RUNNING}[PowerStep(step)])
                return PowerSet(name)
        return super()._carry_out(action)


EVENTS = st.one_of(
    st.tuples(st.just("annotate"), st.sampled_from(["", "standby", "hibernated"])),
    st.tuples(st.just("spec"), st.sampled_from(list(SPEC))),
    st.tuples(st.just("command"), st.sampled_from(list(Power))),
    st.tuples(st.just("ask"), st.sampled_from([Power.RUNNING, *STANDING_BY, None])),
    st.tuples(st.just("wake"), st.booleans()),
    st.tuples(st.just("kill"), st.none()),
    st.tuples(st.just("hold"), st.none()),
    st.tuples(st.just("turn"), st.integers(1, 4)),
    st.tuples(st.just("restart"), st.none()),
)


def happen(model: MachineModel, event: str, detail: object) -> None:
    match event, detail:
        case "annotate", str() as word:
            model.note(names.STANDBY, word)
        case "spec", str() as word:
            model.note(names.VM_POWER, word)
        case "command", Power() as power:
            model.command(power)
        case "ask", Power() | None as asked:
            model.ask(asked)
        case "wake", bool() as wakes:
            model.ask(Power.RUNNING if wakes else None, owner="stream")
        case "kill", _:
            model.exit("guest", 1)
        case "hold", _:
            model.hold()
        case "turn", int() as turns:
            for _ in range(turns):
                model.turn()
        case "restart", _:
            model.restart_agent()


@given(st.lists(EVENTS, max_size=14))
def test_a_machine_ends_as_it_is_wanted_unless_its_guest_paused_itself(
    events: list[tuple[str, object]],
) -> None:
    model = MachineModel()
    model.calm()
    for event, detail in events:
        happen(model, event, detail)
    model.calm()
    wanted = wanted_power(model.desired, model.facts)
    held = model.is_held
    assert model.state is ENDS[wanted] or (held and wanted not in HELD)
    model.ask(Power.RUNNING, owner="last")
    model.calm()
    if wanted in HELD:
        assert model.state is ENDS[wanted], "a request in memory does not wake what vm or powerSpec stopped"
    else:
        assert model.state is (UnitState.PAUSED if held else UnitState.RUNNING)


@given(st.lists(EVENTS, max_size=6), st.sampled_from(list(Power)), st.sampled_from(list(Power)))
def test_the_last_command_counts_whatever_came_before(
    events: list[tuple[str, object]], first: Power, last: Power
) -> None:
    model = MachineModel()
    model.calm()
    for event, detail in events:
        happen(model, event, detail)
    model.ask(None)
    model.ask(None, owner="stream")
    model.command(first)
    model.turn()
    model.command(last)
    model.calm()
    assert wanted_power(model.desired, model.facts) is last
    assert model.state is ENDS[last] or (model.is_held and last not in HELD)
