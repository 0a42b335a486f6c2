"""Containers that the runtime has forgotten: what the stored status says counts (ST6, B4)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.kube.types.core import Container
from kubeletx.pods.model import results
from kubeletx.pods.model.facts import DesiredPod, PodFacts, UnitFacts
from kubeletx.pods.model.runs import restarts_of
from kubeletx.pods.plan.progress import due_units, has_ended, wants_any_unit
from tests.unit.pods.status_model import at, container, exited, facts, pod, status_of, unit


def due(desired: DesiredPod, known: PodFacts) -> list[str]:
    return [d.name for d in due_units(desired, known, at(100), fresh=False)]


def test_a_container_that_ran_and_was_lost_does_not_run_a_second_time_under_never() -> None:
    desired = pod("a", policy="Never")
    before = status_of(desired, facts(unit("a")))
    known = facts(previous_status=before)
    assert has_ended(desired, known)
    assert not wants_any_unit(desired, known)
    assert status_of(desired, known).phase == "Failed"
    assert not has_ended(desired, replace(known, snapshot=None))


def test_a_container_that_ran_and_was_lost_runs_again_under_always() -> None:
    desired = pod("a")
    known = facts(previous_status=status_of(desired, facts(unit("a"))))
    assert not has_ended(desired, known)
    assert due(desired, known) == ["a"]


def test_a_container_that_completed_and_was_forgotten_does_not_run_beside_the_others_again() -> None:
    desired = pod("a", "b", policy="OnFailure")
    before = status_of(desired, facts(exited("a"), unit("b")))
    known = facts(unit("b"), previous_status=before)
    assert due(desired, known) == []
    assert not has_ended(desired, known)


def test_a_forgotten_init_container_runs_again_in_a_new_sandbox() -> None:
    desired = pod("a", init=(Container(name="i"),))
    before = status_of(desired, facts(exited("i"), unit("a")))
    assert due(desired, facts(previous_status=before)) == ["i"]


@given(attempt=st.integers(0, 40), reboots=st.integers(0, 40))
def test_the_next_unit_is_one_restart_more_than_was_shown_with_the_reboots_of_the_last(
    attempt: int, reboots: int
) -> None:
    desired = pod("a")
    ended = replace(exited("a", 1, attempt=attempt), restarts=reboots)
    known = facts(ended, previous_status=status_of(desired, facts(ended)))
    assert known.previous_status is not None
    shown = container(known.previous_status, "a").restart_count
    assert shown == attempt + reboots
    (due_unit,) = due_units(desired, known, at(100), fresh=False)
    assert due_unit.attempt == shown + 1
    assert restarts_of(replace(known, snapshot=None), ended.summary) == shown


def test_a_start_that_failed_ends_what_its_predecessors_stop_had_promised() -> None:
    desired = pod("a", policy="Never")
    known = facts(exited("a", 128), units={"a": UnitFacts(killed="SpecChanged")})
    assert not has_ended(desired, known)
    refused = results.apply(
        known, results.UnitFailed("a", "CreateContainerError", "no image", created=False), at(100)
    )
    assert not has_ended(desired, refused)
    stands_there_ended = results.UnitFailed("a", "RunContainerError", "no such program", created=True)
    assert has_ended(desired, results.apply(known, stands_there_ended, at(100)))
