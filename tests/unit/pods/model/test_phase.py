"""The phase (ST1, B4)."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from kubeletx.api import UnitState, UnitStatus
from kubeletx.kube.types.core import Container, PodStatus
from kubeletx.pods.model.facts import Deletion, RestartBackoff, UnitFacts
from tests.unit.pods.status_model import exited, facts, pod, status_of, unit

SIDECAR = Container(name="side", restart_policy="Always")
INIT = Container(name="i")


@pytest.mark.parametrize(
    ("policy", "units", "phase"),
    [
        ("Always", (), "Pending"),
        ("Always", (unit("a"),), "Pending"),
        ("Always", (unit("a"), unit("b")), "Running"),
        ("Always", (unit("a"), exited("b", 1)), "Running"),
        ("Always", (exited("a"), exited("b")), "Running"),
        ("OnFailure", (exited("a"), exited("b")), "Succeeded"),
        ("OnFailure", (exited("a"), exited("b", 1)), "Running"),
        ("Never", (exited("a"), exited("b")), "Succeeded"),
        ("Never", (exited("a"), exited("b", 1)), "Failed"),
        ("Never", (unit("a"), exited("b", 1)), "Running"),
        ("Always", (unit("a"), unit("b", UnitState.CREATED)), "Pending"),
        ("Always", (unit("a", UnitState.PAUSED), unit("b", UnitState.SUSPENDED)), "Running"),
    ],
)
def test_the_phase_follows_from_the_containers(
    policy: str, units: tuple[UnitStatus, ...], phase: str
) -> None:
    assert status_of(pod("a", "b", policy=policy), facts(*units)).phase == phase


@pytest.mark.parametrize(
    ("policy", "units", "phase"),
    [
        ("Always", (unit("i"),), "Pending"),
        ("Always", (exited("i", 1),), "Pending"),
        ("OnFailure", (exited("i", 1),), "Pending"),
        ("Never", (exited("i", 1),), "Failed"),
        ("Always", (exited("i"),), "Pending"),
        ("Always", (exited("i"), unit("a")), "Running"),
    ],
)
def test_initialisation_comes_before_running(policy: str, units: tuple[UnitStatus, ...], phase: str) -> None:
    assert status_of(pod("a", init=(INIT,), policy=policy), facts(*units)).phase == phase


@pytest.mark.parametrize(
    ("policy", "units", "phase"),
    [
        ("Never", (unit("side"), exited("a")), "Running"),
        ("Never", (exited("side", 137), exited("a")), "Succeeded"),
        ("Never", (exited("side", 137), exited("a", 1)), "Failed"),
        ("Always", (exited("side", 1), unit("a")), "Running"),
        ("Always", (unit("side"),), "Pending"),
    ],
)
def test_sidecars_that_ended_do_not_count(policy: str, units: tuple[UnitStatus, ...], phase: str) -> None:
    assert status_of(pod("a", init=(SIDECAR,), policy=policy), facts(*units)).phase == phase


def test_a_crash_loop_stays_running() -> None:
    entry = UnitFacts(exited_at=99.0, backoff=RestartBackoff(delay_seconds=80, updated_at=50))
    assert status_of(pod("a"), facts(exited("a", 1), units={"a": entry})).phase == "Running"


def test_a_containers_own_policy_counts() -> None:
    own = Container(name="a", restart_policy="Always")
    assert status_of(pod(own, policy="Never"), facts(exited("a", 1))).phase == "Running"


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_the_phase_never_leaves_a_final_one_and_keeps_reason_and_message(phase: str) -> None:
    before = PodStatus(phase=phase, reason="Evicted", message="low on memory")
    status = status_of(pod("a"), facts(unit("a"), previous_status=before))
    assert (status.phase, status.reason, status.message) == (phase, "Evicted", "low on memory")
    from_source = status_of(pod("a", status=before), facts(unit("a")))
    assert from_source.phase == phase


@pytest.mark.parametrize("reason", ["Evicted", "DeadlineExceeded"])
def test_an_end_that_the_node_decided_is_failed_once_nothing_runs(reason: str) -> None:
    end = Deletion(requested_at=90, grace_seconds=30, reason=reason, message="why")
    desired = pod("a")
    before = status_of(desired, facts(unit("a")))
    ending = replace(desired, deletion=end)
    still = status_of(ending, facts(unit("a"), previous_status=before))
    assert (still.phase, still.reason) == ("Running", None)
    gone = status_of(ending, facts(exited("a", 0), previous_status=still))
    assert (gone.phase, gone.reason, gone.message) == ("Failed", reason, "why")
    after = status_of(desired, facts(exited("a", 0), previous_status=gone))
    assert (after.phase, after.reason, after.message) == ("Failed", reason, "why")


def test_an_end_waits_for_a_start_in_flight() -> None:
    end = Deletion(requested_at=90, grace_seconds=30, reason="Evicted")
    desired = replace(pod("a"), deletion=end)
    assert status_of(desired, facts(in_flight=frozenset({"unit/a"}))).phase == "Pending"
    assert status_of(desired, facts()).phase == "Failed"


@pytest.mark.parametrize(("source", "phase"), [("file", "Running"), ("api", "Succeeded")])
def test_a_deleted_pod_is_final_only_if_a_cluster_waits_for_that(source: str, phase: str) -> None:
    desired = replace(pod("a", source=source), deletion=Deletion(requested_at=90, grace_seconds=30))
    assert status_of(desired, facts(exited("a", 0))).phase == phase


def test_an_unhealthy_container_that_exited_with_0_does_not_end_its_pod() -> None:
    desired = pod("a", policy="OnFailure")
    before = status_of(desired, facts(unit("a")))
    killed = {"a": UnitFacts(killed="Unhealthy")}
    assert status_of(desired, facts(exited("a"), units=killed, previous_status=before)).phase == "Running"
    stopping = facts(exited("a"), in_flight=frozenset({"unit/a"}), previous_status=before)
    assert status_of(desired, stopping).phase == "Running"
    assert status_of(desired, facts(exited("a"), previous_status=before)).phase == "Succeeded"


def test_a_failed_initialisation_is_final_once_its_sidecars_have_ended() -> None:
    desired = pod("a", init=(SIDECAR, INIT), policy="Never")
    before = status_of(desired, facts(unit("side"), unit("i")))
    still = status_of(desired, facts(unit("side"), exited("i", 1), previous_status=before))
    assert still.phase == "Pending"
    gone = status_of(desired, facts(exited("side", 137), exited("i", 1), previous_status=still))
    assert gone.phase == "Failed"
