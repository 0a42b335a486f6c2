"""A container's exit that restarts all containers of its pod, played through on a model runtime (L7)."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import names
from kubeletx.kube.types.core import Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes
from kubeletx.pods.model import actions as act
from kubeletx.pods.model.facts import DesiredPod
from kubeletx.pods.plan.progress import has_ended
from kubeletx.pods.plan.restart_all import due_generation, outdated_units
from kubeletx.pods.status.build import NodeIdentity, build_status
from tests.unit.pods.pod_model import PodModel, make_pod

RULE = ContainerRestartRule(
    action="RestartAllContainers", exit_codes=ContainerRestartRuleOnExitCodes(operator="In", values=(88,))
)
NODE = NodeIdentity(name="n")
SIDECAR = Container(name="side", restart_policy="Always")


def a_pod(*, sidecar: bool = False) -> DesiredPod:
    """Init `i`, then `a`, whose exit code 88 restarts all, and `b`; nothing restarts otherwise."""
    init = (SIDECAR, Container(name="i")) if sidecar else (Container(name="i"),)
    made = make_pod(("b",), init=init, policy="Never")
    a = Container(name="a", restart_policy="Never", restart_policy_rules=(RULE,))
    spec = replace(made.pod.spec, containers=(a, *made.pod.spec.containers))
    return replace(made, pod=replace(made.pod, spec=spec))


def running(model: PodModel) -> PodModel:
    model.settle()
    model.exit("i", 0)
    model.settle()
    return model


def of(model: PodModel, kind: type[act.Action]) -> list[str]:
    return [action.name for action in model.journal if isinstance(action, kind)]  # type: ignore[attr-defined]


def test_all_containers_end_and_start_again_in_the_same_sandbox() -> None:
    model = running(PodModel(a_pod(sidecar=True)))
    assert sorted(model.alive()) == ["a", "b", "side"]
    sandbox = model.sandboxes[0].id
    model.journal.clear()
    model.exit("a", 88)
    model.settle()
    assert of(model, act.StopUnit) == ["b", "side"]
    assert of(model, act.StartUnit) == ["side", "i"]  # and the others wait for the init container
    model.exit("i", 0)
    model.settle()
    assert of(model, act.StartUnit) == ["side", "i", "a", "b"]
    assert sorted(model.alive()) == ["a", "b", "side"]
    assert [one.id for one in model.sandboxes] == [sandbox]
    assert outdated_units(model.desired, model.facts) == []
    attempts = {unit.summary.name: unit.summary.attempt for unit in reversed(model.units)}
    assert attempts == {"side": 1, "i": 1, "a": 1, "b": 1}


def test_another_exit_code_restarts_nothing() -> None:
    model = running(PodModel(a_pod()))
    model.exit("a", 1)
    model.settle()
    model.exit("b", 0)
    model.settle()
    assert due_generation(model.desired, model.facts) == 0
    assert has_ended(model.desired, model.facts)


def test_a_restarted_pod_ends_by_its_policy_and_may_be_restarted_again() -> None:
    model = running(PodModel(a_pod()))
    for generation in (1, 2):
        model.exit("b", 0)  # it had ended for good: the rule runs it again all the same
        model.exit("a", 88)
        for _ in range(3):
            model.mono += 400  # longer than any back-off
            model.settle()
            model.exit("i", 0)
        assert due_generation(model.desired, model.facts) == generation
        assert sorted(model.alive()) == ["a", "b"]
    model.exit("b", 0)
    model.exit("a", 0)
    model.settle()
    assert has_ended(model.desired, model.facts)


def test_while_it_lasts_condition_and_waiting_containers_say_so() -> None:
    model = running(PodModel(a_pod()))
    model.exit("a", 88)
    model.turn()  # stops what still lives
    status = build_status(model.desired, replace(model.facts, snapshot=model.snapshot()), model.now(), NODE)
    waits = {one.name: one.state.waiting for one in status.container_statuses}
    assert {name: one.reason for name, one in waits.items() if one is not None} == {
        "a": "RestartingAllContainers",
        "b": "RestartingAllContainers",
    }
    conditions = {one.type: one for one in status.conditions}
    assert conditions[names.ALL_CONTAINERS_RESTARTING].status == "True"
    assert status.phase in ("Pending", "Running")
    model.settle()
    model.exit("i", 0)
    model.settle()
    status = build_status(model.desired, model.facts, model.now(), NODE)
    conditions = {one.type: one for one in status.conditions}
    assert conditions[names.ALL_CONTAINERS_RESTARTING].status == "False"


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=12, max_size=12))
def test_a_restart_of_the_agent_in_the_middle_changes_nothing(restarts: list[bool]) -> None:
    model = running(PodModel(a_pod(sidecar=True)))
    model.exit("a", 88)
    for restart in restarts:
        if restart:
            model.restart_agent()
        model.turn()
        model.exit("i", 0)
    model.mono += 400
    model.settle()
    model.exit("i", 0)
    model.mono += 400
    model.settle()
    assert sorted(model.alive()) == ["a", "b", "side"]
    assert due_generation(model.desired, model.facts) == 1
    newest = {unit.summary.name: unit.summary.attempt for unit in reversed(model.units)}
    assert newest == {"side": 1, "i": 1, "a": 1, "b": 1}
