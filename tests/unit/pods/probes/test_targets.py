"""Which units are probed (P3)."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import UnitId, UnitState
from kubeletx.kube.types.core import Container, ExecAction, Probe
from kubeletx.pods.model.facts import HookState, ProbeFacts, UnitFacts
from kubeletx.pods.probes.targets import targets_of
from tests.unit.pods.status_model import exited, facts, pod, status_of, unit

PROBE = Probe(exec=ExecAction(command=("true",)))
WEB = Container(name="web", readiness_probe=PROBE)


def test_living_units_with_probes_are_targets_with_the_pods_address() -> None:
    side = Container(name="side", restart_policy="Always", liveness_probe=PROBE)
    init = Container(name="i", liveness_probe=PROBE)
    desired = pod(WEB, "plain", init=(init, side))
    known = facts(unit("i"), unit("side"), unit("web"), unit("plain"))
    found = targets_of(desired, known, is_stopping=False)
    assert [(t.field, t.unit_id, t.pod_ip) for t in found] == [
        ("spec.initContainers{side}", "side-0", "10.0.0.1"),
        ("spec.containers{web}", "web-0", "10.0.0.1"),
    ]
    assert found[0].started_at is not None


def test_ended_units_are_not_targets() -> None:
    assert targets_of(pod(WEB), facts(exited("web")), is_stopping=False) == ()


def test_a_unit_is_not_a_target_before_its_post_start_hook_is_done() -> None:
    for state, number in ((HookState.RUNNING, 0), (HookState.DONE, 1)):
        known = facts(unit("web"), units={"web": UnitFacts(hook=state, hook_unit=UnitId("web-0"))})
        assert len(targets_of(pod(WEB), known, is_stopping=False)) == number


def test_held_and_parked_units_rest() -> None:
    for state in (UnitState.PAUSED, UnitState.SUSPENDED):
        assert targets_of(pod(WEB), facts(unit("web", state)), is_stopping=False)[0].is_resting


def test_a_unit_that_is_being_stopped_says_so() -> None:
    assert targets_of(pod(WEB), facts(unit("web")), is_stopping=True)[0].is_stopping
    known = facts(unit("web"), stopping={"web": 10.0})
    assert targets_of(pod(WEB), known, is_stopping=False)[0].is_stopping


def test_what_was_known_before_a_restart_of_the_agent_comes_along() -> None:
    probes = ProbeFacts(unit_id=UnitId("web-0"), readiness=True)
    before = status_of(pod(WEB), facts(unit("web"), units={"web": UnitFacts(probes=probes)}))
    now = facts(unit("web"), recovered=True, previous_status=before)
    found = targets_of(pod(WEB), now, is_stopping=False)[0]
    assert (found.was_started, found.was_ready) == (True, True)
    fresh = targets_of(pod(WEB), replace(now, recovered=False), is_stopping=False)[0]
    assert (fresh.was_started, fresh.was_ready) == (None, None)


def test_network_probes_find_their_unit_although_the_runtime_never_answered() -> None:
    before = status_of(pod(WEB), facts(unit("web")))
    known = facts(snapshot=None, recovered=True, previous_status=before)
    found = targets_of(pod(WEB), known, is_stopping=False)[0]
    assert (found.unit_id, found.pod_ip) == ("web-0", "10.0.0.1")
