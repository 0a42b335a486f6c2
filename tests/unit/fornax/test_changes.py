"""Messages to one core: their order, and what replaces lost ones."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubeletx.fornax.changes import Kind, Outbox, Step


class Delivery(RuleBasedStateMachine):
    """A node with one core. Calls fail before or after the core took the message, streams break, the core asks."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox = Outbox(max_changes=5)
        self.outbox.opened()
        self.outbox.node_is_ready = True
        self.node = 0
        """The node's revision; the number of its last change is its whole state."""
        self.core = -1
        self.known = -1
        """State of the node in the core."""
        self.now = 0.0
        self.gaps = 0

    @rule()
    def change(self) -> None:
        self.node += 1
        self.outbox.add(self.node, b"change")

    @rule()
    def change_of_the_node(self) -> None:
        self.node += 1
        self.outbox.request_full()

    @rule()
    def break_the_stream(self) -> None:
        self.outbox.opened()

    @rule()
    def restart_the_core(self) -> None:
        self.core = self.known = -1
        self.outbox.opened()

    @precondition(lambda self: self.core >= 0)
    @rule()
    def configure(self) -> None:
        self.outbox.registered()

    @rule(taken=st.booleans(), answered=st.booleans())
    def send(self, taken: bool, answered: bool) -> None:
        self.deliver(taken or answered, answered)

    def deliver(self, taken: bool = True, answered: bool = True) -> bool:
        step = self.outbox.next(self.now)
        if step is None:
            return False
        revision = self.revision_of(step)
        if taken:
            self.take(step, revision)
        if answered:
            self.outbox.done(step, revision)
        else:
            self.outbox.request_full()
        return True

    def revision_of(self, step: Step) -> int:
        return step.revision if step.kind in (Kind.CHANGE, Kind.REGISTER) else self.node

    def take(self, step: Step, revision: int) -> None:
        match step.kind:
            case Kind.CHANGE if revision not in (self.core, self.core + 1):
                self.gaps += 1
            case Kind.REGISTER:
                assert self.core == revision, "a registration would set the core back"
            case _:
                self.core = self.known = revision

    @invariant()
    def the_core_never_sees_a_gap(self) -> None:
        assert self.gaps == 0

    def teardown(self) -> None:
        self.now += 100.0
        while self.deliver():
            pass
        assert self.core == self.known == self.node
        assert len(self.outbox) == 0
        if self.outbox.is_registered:
            assert self.outbox.is_ready_reported


TestDelivery = Delivery.TestCase


def opened(**limits: int) -> Outbox:
    """An outbox whose core is registered and has a full state."""
    outbox = Outbox(**limits)
    outbox.opened()
    step = outbox.next(0.0)
    assert step is not None
    outbox.done(step, 0)
    outbox.registered()
    return outbox


@given(st.integers(1, 50))
def test_a_core_that_is_too_far_behind_gets_one_full_state(count: int) -> None:
    outbox = opened(max_changes=10)
    for revision in range(1, count + 1):
        outbox.add(revision, b"x")
    step = outbox.next(0.0)
    assert step is not None
    assert step.kind is (Kind.STATE if count > 10 else Kind.CHANGE)
    assert outbox.overflows == (count > 10)


def test_changes_are_limited_by_their_size_too() -> None:
    outbox = opened(max_bytes=100)
    outbox.add(1, b"x" * 100)
    assert not outbox.needs_full
    outbox.add(2, b"x")
    assert outbox.needs_full


def test_a_registration_is_repeated_at_its_interval() -> None:
    outbox = Outbox(register_seconds=5.0)
    outbox.opened()
    kinds = []
    for now in (0.0, 0.0, 1.0, 5.0, 5.0, 9.9, 10.0):
        step = outbox.next(now)
        if step is not None:
            kinds.append(step.kind)
            outbox.done(step, 7)
    assert kinds == [Kind.STATE, Kind.REGISTER, Kind.REGISTER, Kind.REGISTER]
    assert outbox.due_at() == 15.0
    outbox.registered()
    assert outbox.due_at() == math.inf


def test_the_answer_to_a_configuration_waits_until_the_node_is_ready() -> None:
    outbox = opened()
    assert outbox.next(0.0) is None
    outbox.node_is_ready = True
    outbox.request_full()
    step = outbox.next(0.0)
    assert step is not None
    assert step.kind is Kind.READY


def test_a_configuration_that_comes_before_the_answer_to_node_ready_gets_another_one() -> None:
    outbox = opened()
    outbox.node_is_ready = True
    outbox.registered()
    first = outbox.next(0.0)
    assert first is not None
    outbox.registered()
    outbox.done(first, 1)
    second = outbox.next(0.0)
    assert second is not None
    assert (first.kind, second.kind) == (Kind.READY, Kind.READY)


def test_an_answer_to_a_refused_session_follows_a_full_state_and_has_its_revision() -> None:
    outbox = opened()
    outbox.answer("ns/s")
    outbox.request_full()
    kinds = []
    while (step := outbox.next(0.0)) is not None:
        kinds.append((step.kind, step.revision, step.session))
        outbox.done(step, 9)
    assert kinds == [(Kind.STATE, 0, ""), (Kind.ANSWER, 9, "ns/s")]
    outbox.answer("ns/s")
    step = outbox.next(0.0)
    assert step is not None
    outbox.refused(step)
    outbox.done(Step(kind=Kind.STATE), 9)
    assert outbox.needs_full
    assert outbox.next(0.0) == Step(kind=Kind.STATE)
    assert outbox.next(0.0) is None


def test_a_standby_is_registered_with_once_until_it_is_the_primary() -> None:
    outbox = Outbox(register_seconds=5.0)
    outbox.set_standby(True)
    outbox.opened()

    def kinds(now: float) -> list[Kind]:
        found = []
        while (step := outbox.next(now)) is not None:
            outbox.done(step, 7)
            found.append(step.kind)
        return found

    assert kinds(0.0) == [Kind.STATE, Kind.REGISTER]
    assert (kinds(100.0), outbox.due_at()) == ([], math.inf)
    outbox.set_standby(False)
    assert (kinds(100.0), kinds(105.0)) == ([Kind.REGISTER], [Kind.REGISTER])
