"""The table of states: what it allows, that it ends, and what a request must be."""

from __future__ import annotations

import itertools
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from kubeletx.api import Internal, InvalidConfig, PodUid
from kubeletx.sessions.model import (
    DATA_LIMIT,
    TABLE,
    Cause,
    OpenRequest,
    Session,
    SessionState,
    new_session,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
REQUEST = OpenRequest(id="default/s1", pod_id="default/web", application="game", data=b"x")


def a_session(state: SessionState = SessionState.STARTING) -> Session:
    return replace(new_session(REQUEST, PodUid("u1"), NOW), state=state)


@pytest.mark.parametrize(("state", "cause"), sorted(set(itertools.product(SessionState, Cause)) - set(TABLE)))
def test_a_cause_that_the_table_does_not_have_is_refused(state: SessionState, cause: Cause) -> None:
    session = a_session(state)
    assert not session.can(cause)
    with pytest.raises(Internal, match=f"session default/s1 is {state}: impossible cause {cause.name}"):
        session.after(cause, NOW)


def test_every_state_is_reached_and_only_terminated_is_final() -> None:
    reached = {SessionState.STARTING, *TABLE.values()}
    assert reached == set(SessionState)
    assert set(SessionState) - {state for state, _ in TABLE} == {SessionState.TERMINATED}


def test_the_table_has_every_change_of_the_document() -> None:
    drawn = {
        ("Starting", "ReadinessChecking"),
        ("ReadinessChecking", "Ready"),
        ("ReadinessChecking", "Terminated"),
        ("Ready", "Terminating"),
        ("Ready", "Live"),
        ("Live", "Evacuating"),
        ("Live", "Terminating"),
        ("Evacuating", "Terminating"),
        ("Terminating", "Terminated"),
    }
    assert drawn <= {(before.value, after.value) for (before, _), after in TABLE.items()}


@given(st.lists(st.sampled_from(Cause)))
def test_times_are_set_at_the_states_that_they_name(causes: list[Cause]) -> None:
    session = a_session()
    was_ready = False
    for cause in causes:
        if session.can(cause):
            session = session.after(cause, NOW)
            was_ready = was_ready or cause is Cause.OPENED
    assert (session.ready_at is not None) == was_ready
    assert (session.closed_at is not None) == session.is_over


def test_a_session_has_the_spec_of_its_request_whatever_its_state() -> None:
    session = replace(a_session(), state=SessionState.READY, payload=b"other bytes of the same object")
    assert session.has_spec_of(REQUEST)
    assert not session.has_spec_of(replace(REQUEST, data=b"y"))


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"id": "s1"}, "id"),
        ({"id": "a/b/c"}, "id"),
        ({"pod_id": "/web"}, "pod_id"),
        ({"open_timeout_seconds": 0}, "open_timeout_seconds"),
        ({"close_grace_seconds": -1}, "close_grace_seconds"),
        ({"close_grace_seconds": float("nan")}, "close_grace_seconds"),
        ({"data": b"x" * (DATA_LIMIT + 1)}, "data"),
    ],
)
def test_an_invalid_request_is_refused_with_its_field(fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        replace(REQUEST, **fields).check()
    assert caught.value.field == field
