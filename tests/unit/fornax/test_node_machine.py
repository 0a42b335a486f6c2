"""States of the node under its cores."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletx.api import Internal
from kubeletx.fornax.node_machine import TRANSITIONS, NodeEvent, NodeMachine, NodeState

E, S = NodeEvent, NodeState


@given(st.lists(st.sampled_from(list(NodeEvent)), max_size=30))
def test_a_node_is_ready_only_after_a_configuration_was_applied(events: list[NodeEvent]) -> None:
    machine = NodeMachine()
    applied = False
    for event in events:
        before = machine.state
        if (before, event) not in TRANSITIONS:
            with pytest.raises(Internal, match=event.name):
                machine.step(event)
            assert machine.state is before
            continue
        machine.step(event)
        assert machine.state is TRANSITIONS[before, event]
        applied = applied or event is E.APPLIED
        if machine.state is S.READY:
            assert applied
        if before is S.STOPPED:
            assert machine.state is S.STOPPED


def test_every_state_can_be_reached_and_stopped() -> None:
    reached = {after for (_, _), after in TRANSITIONS.items()} | {S.INITIALIZING}
    assert reached == set(NodeState)
    assert all(TRANSITIONS[state, E.STOP] is S.STOPPED for state in NodeState)


def test_a_later_configuration_that_fails_keeps_the_node_ready() -> None:
    machine = NodeMachine()
    for event in (E.LOADED, E.CONFIGURATION, E.APPLIED, E.CONFIGURATION, E.FAILED):
        machine.step(event)
    assert machine.state is S.READY
