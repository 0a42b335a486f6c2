"""Pod conditions (ST2, ST3)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from kubeletx.api import UnitId, UnitState
from kubeletx.kube.types.core import (
    Container,
    ExecAction,
    PodCondition,
    PodReadinessGate,
    PodStatus,
    Probe,
)
from kubeletx.pods.model.facts import (
    ActionFailure,
    Deletion,
    Outage,
    ProbeFacts,
    Rejection,
    UnitFacts,
    Waiting,
)
from tests.unit.pods.status_model import START, condition, exited, facts, pod, snapshot, status_of, unit

PROBE = Probe(exec=ExecAction(command=("true",)))
OUTAGE = Outage(since=START + timedelta(seconds=50), reason="RuntimeUnavailable", message="no answer")


def test_a_running_pod_has_the_kubelets_five_conditions_in_order_all_true() -> None:
    status = status_of(pod("a"), facts(unit("a")))
    assert [c.type for c in status.conditions] == [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    assert {c.status for c in status.conditions} == {"True"}
    assert {c.observed_generation for c in status.conditions} == {3}
    assert status.observed_generation == 3


def test_unready_containers_are_named() -> None:
    desired = pod(Container(name="a", readiness_probe=PROBE), Container(name="b", readiness_probe=PROBE), "c")
    status = status_of(desired, facts(unit("a"), unit("b"), unit("c")))
    for type in ("Ready", "ContainersReady"):
        found = condition(status, type)
        assert (found.status, found.reason) == ("False", "ContainersNotReady")
        assert found.message == "containers with unready status: [a b]"


def test_incomplete_init_containers_are_named() -> None:
    init = (Container(name="i"), Container(name="side", restart_policy="Always"))
    found = condition(status_of(pod("a", init=init), facts(exited("i"))), "Initialized")
    assert (found.status, found.reason) == ("False", "ContainersNotInitialized")
    assert found.message == "containers with incomplete status: [side]"


def test_a_pod_that_ran_stays_initialized_while_its_sidecar_restarts() -> None:
    init = (Container(name="side", restart_policy="Always"),)
    status = status_of(pod("a", init=init), facts(exited("side", 1), unit("a")))
    assert condition(status, "Initialized").status == "True"
    assert condition(status, "ContainersReady").status == "False"
    assert status.phase == "Running"


@pytest.mark.parametrize(("code", "reason"), [(0, "PodCompleted"), (1, "PodFailed")])
def test_a_finished_pod_is_not_ready_with_its_reason(code: int, reason: str) -> None:
    status = status_of(pod("a", policy="Never"), facts(exited("a", code), sandbox=False))
    for type in ("Ready", "ContainersReady"):
        assert (condition(status, type).status, condition(status, type).reason) == ("False", reason)
    assert condition(status, "PodReadyToStartContainers").status == "False"
    assert condition(status, "Initialized").status == "True"


def test_readiness_gates_are_respected() -> None:
    gates = (PodReadinessGate(condition_type="x/one"), PodReadinessGate(condition_type="x/two"))
    given = PodStatus(conditions=(PodCondition(type="x/one", status="False"),))
    status = status_of(pod("a", status=given, readiness_gates=gates), facts(unit("a")))
    found = condition(status, "Ready")
    assert (found.status, found.reason) == ("False", "ReadinessGatesNotReady")
    assert condition(status, "ContainersReady").status == "True"
    open_ = PodStatus(conditions=tuple(PodCondition(type=t, status="True") for t in ("x/one", "x/two")))
    status = status_of(pod("a", status=open_, readiness_gates=gates), facts(unit("a")))
    assert condition(status, "Ready").status == "True"


def test_conditions_of_others_are_kept_and_an_announced_disruption_stays() -> None:
    theirs = PodCondition(type="x/theirs", status="Unknown", last_transition_time=START)
    disruption = PodCondition(type="DisruptionTarget", status="True", last_transition_time=START)
    desired = pod("a", status=PodStatus(conditions=(theirs,)))
    status = status_of(desired, facts(unit("a"), previous_status=PodStatus(conditions=(disruption,))))
    assert condition(status, "x/theirs") == theirs
    assert condition(status, "DisruptionTarget") == disruption


def test_the_transition_time_moves_only_with_the_status() -> None:
    desired = pod(Container(name="a", readiness_probe=PROBE))
    first = status_of(desired, facts(unit("a")), 10)
    second = status_of(desired, facts(unit("a"), previous_status=first), 20)
    assert second == first
    ready = status_of(pod("a"), facts(unit("a"), previous_status=second), 30)
    assert condition(ready, "Ready").last_transition_time == START + timedelta(seconds=30)
    assert condition(ready, "PodScheduled").last_transition_time == START + timedelta(seconds=10)


def test_an_outage_is_reported_since_when_and_everything_else_stays() -> None:
    desired = pod("a")
    before = status_of(desired, facts(unit("a")))
    during = status_of(desired, facts(unit("a"), outage=OUTAGE, previous_status=before))
    found = condition(during, "kubeletx.io/RuntimeReachable")
    assert (found.status, found.reason, found.message) == ("False", "RuntimeUnavailable", "no answer")
    assert found.last_transition_time == OUTAGE.since
    others = tuple(c for c in during.conditions if c != found)
    assert replace(during, conditions=others) == before
    after = status_of(desired, facts(unit("a"), previous_status=during), 200)
    assert condition(after, "kubeletx.io/RuntimeReachable").status == "True"


def test_an_outage_says_what_waits_for_it() -> None:
    desired = replace(pod("a"), deletion=Deletion(requested_at=90, grace_seconds=30))
    found = condition(status_of(desired, facts(unit("a"), outage=OUTAGE)), "kubeletx.io/RuntimeReachable")
    assert found.message == "no answer; waiting for it: deletion"
    looping = facts(exited("a", 1, attempt=2), outage=OUTAGE)
    found = condition(status_of(pod("a"), looping), "kubeletx.io/RuntimeReachable")
    assert found.message == "no answer; waiting for it: restart of a"


def test_an_outage_says_that_a_condemned_container_waits_for_its_restart() -> None:
    for probes, waits in (
        (ProbeFacts(unit_id=UnitId("a-0"), liveness=False), "; waiting for it: restart of a"),
        (ProbeFacts(unit_id=UnitId("a-0"), startup=False), "; waiting for it: restart of a"),
        (ProbeFacts(unit_id=UnitId("a-0"), liveness=True, readiness=False), ""),
    ):
        known = facts(unit("a"), outage=OUTAGE, units={"a": UnitFacts(probes=probes)})
        found = condition(status_of(pod("a"), known), "kubeletx.io/RuntimeReachable")
        assert found.message == f"no answer{waits}"


def test_held_and_parked_units_are_reported_in_a_condition_of_their_own() -> None:
    known = facts(unit("a", UnitState.PAUSED), unit("b", UnitState.SUSPENDED), unit("c"))
    status = status_of(pod("a", "b", "c"), known)
    found = condition(status, "kubeletx.io/UnitsRunning")
    assert (found.status, found.reason) == ("False", "UnitsSuspended")
    assert found.message == "a is paused, b is suspended"
    ready = condition(status, "ContainersReady")
    assert ready.message == "containers with unready status: [a b]; a is paused, b is suspended"


def test_an_invalid_manifest_of_a_running_pod_is_reported() -> None:
    status = status_of(replace(pod("a"), problem="web.yaml: no containers"), facts(unit("a")))
    found = condition(status, "kubeletx.io/ManifestValid")
    assert (found.status, found.reason, found.message) == (
        "False",
        "InvalidManifest",
        "web.yaml: no containers",
    )
    assert condition(status, "Ready").status == "True"


def test_a_pod_that_waits_for_its_runtime_is_scheduled_and_says_so() -> None:
    waiting = Waiting(reason="RuntimeCordoned", message="runtime gpu is cordoned")
    status = status_of(pod("a"), facts(runtime=None, snapshot=None, waiting=waiting))
    assert (status.phase, status.reason, status.message) == (
        "Pending",
        "RuntimeCordoned",
        "runtime gpu is cordoned",
    )
    assert condition(status, "PodScheduled").status == "True"
    found = condition(status, "PodReadyToStartContainers")
    assert (found.status, found.reason) == ("False", "RuntimeCordoned")
    bound = status_of(pod("a"), facts(unit("a"), previous_status=status))
    assert (bound.phase, bound.reason, bound.message) == ("Running", None, None)


def test_a_rejected_pod_is_failed_with_the_kubelets_words_and_shows_no_containers() -> None:
    known = facts(
        runtime=None, snapshot=None, rejection=Rejection(reason="OutOfcpu", message="Node has no cpu")
    )
    status = status_of(pod("a", init=(Container(name="i"),)), known)
    assert (status.phase, status.reason) == ("Failed", "OutOfcpu")
    assert status.message == "Pod was rejected: Node has no cpu"
    assert status.container_statuses == ()
    assert status.init_container_statuses == ()
    assert condition(status, "Ready").reason == "PodFailed"


def test_a_sandbox_that_cannot_be_made_is_the_reason_for_not_being_ready_to_start() -> None:
    failure = ActionFailure(reason="FailedCreatePodSandBox", message="no CNI", retry_at=101)
    found = condition(
        status_of(pod("a"), facts(sandbox=None, sandbox_failure=failure)), "PodReadyToStartContainers"
    )
    assert (found.status, found.reason, found.message) == ("False", "FailedCreatePodSandBox", "no CNI")


def test_a_sandbox_without_an_address_is_not_ready_to_start() -> None:
    known = facts(snapshot=snapshot(ips=()))
    assert condition(status_of(pod("a"), known), "PodReadyToStartContainers").status == "False"
