"""The table of a pod's states: the document's drawing, and what holds for every order of causes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kubeletx.fornax.pods.machine import ENDING, TABLE, PodCause, PodState, step

causes = st.frozensets(st.sampled_from(PodCause))


def test_the_table_has_every_change_of_the_document() -> None:
    document = {
        ("Creating", "LivenessChecking"),
        ("LivenessChecking", "Standby"),
        ("LivenessChecking", "Terminating"),
        ("Standby", "Terminating"),
        ("Standby", "Activating"),
        ("Activating", "Running"),
        ("Activating", "Evacuating"),
        ("Activating", "Terminating"),
        ("Running", "Evacuating"),
        ("Evacuating", "Terminating"),
        ("Terminating", "Terminated"),
    }
    ours = {(state.value, then.value) for state, rows in TABLE.items() for _, then in rows}
    assert document <= ours
    assert set(TABLE) == set(PodState)


@given(st.lists(causes))
def test_a_pod_that_ends_never_comes_back(history: list[frozenset[PodCause]]) -> None:
    state = PodState.CREATING
    for now in history:
        after = step(state, now)
        assert state not in ENDING or after in ENDING
        assert state is not PodState.TERMINATED or after is PodState.TERMINATED
        state = after


@given(st.sampled_from(PodState), causes)
def test_a_pod_of_which_nothing_is_left_is_terminated(state: PodState, now: frozenset[PodCause]) -> None:
    assert step(state, now | {PodCause.GONE}) is PodState.TERMINATED


@given(st.sampled_from(PodState), causes)
def test_a_deleted_pod_leaves_its_state(state: PodState, now: frozenset[PodCause]) -> None:
    assert step(state, now | {PodCause.ENDING}) in ENDING


@given(st.lists(causes, min_size=1))
def test_missed_looks_do_not_change_where_a_pod_gets(history: list[frozenset[PodCause]]) -> None:
    last = frozenset({PodCause.ENDING, PodCause.EVACUATED, PodCause.GONE})
    state = PodState.CREATING
    for now in history:
        state = step(state, now)
    assert step(state, last) is step(PodState.CREATING, last) is PodState.TERMINATED
