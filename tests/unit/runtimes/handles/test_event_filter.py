"""`EventFilter`: no event is lost while calls of ours overlap."""

from __future__ import annotations

import contextlib

import pytest

from kubeletx.api import (
    EventKind,
    PodUid,
    RuntimeEvent,
    SandboxId,
    Unavailable,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)
from kubeletx.runtimes.handles.event_filter import CHANGE_SECONDS, EventFilter
from kubeletx.runtimes.handles.snapshot_table import SnapshotTable

UNIT = UnitId("c")
STOPPED = RuntimeEvent(kind=EventKind.STOPPED, unit_id=UNIT)
CHANGED = RuntimeEvent(kind=EventKind.CHANGED, unit_id=UNIT)


@pytest.fixture
def reported() -> list[RuntimeEvent]:
    return []


@pytest.fixture
def times() -> list[float]:
    """The present moment."""
    return [2.0]


@pytest.fixture
def events(reported: list[RuntimeEvent], times: list[float]) -> EventFilter:
    table = SnapshotTable()
    summary = UnitSummary(
        id=UNIT,
        sandbox_id=SandboxId("s"),
        uid=PodUid("u"),
        name="main",
        attempt=0,
        state=UnitState.RUNNING,
        created_at_ns=1,
    )
    table.note_unit(UnitStatus(summary=summary), at=1.0)
    return EventFilter(table, lambda _uid, event: reported.append(event), lambda: times[0])


def test_an_event_of_a_stop_that_was_overtaken_is_told_when_both_fail(
    events: EventFilter, reported: list[RuntimeEvent]
) -> None:
    with contextlib.suppress(Unavailable), events.acting([UNIT], EventKind.STOPPED):
        events.take(STOPPED)
        with contextlib.suppress(Unavailable), events.acting([UNIT], EventKind.STOPPED):
            raise Unavailable("no answer")
        raise Unavailable("no answer")
    assert reported == [STOPPED]


def test_an_event_of_a_stop_that_succeeded_is_not_news(
    events: EventFilter, reported: list[RuntimeEvent]
) -> None:
    with events.acting([UNIT], EventKind.STOPPED):
        events.take(STOPPED)
    assert reported == []


def test_the_echo_of_a_change_is_not_news_during_the_call_or_soon_after_it(
    events: EventFilter, reported: list[RuntimeEvent]
) -> None:
    with events.acting([UNIT], EventKind.CHANGED):
        events.take(CHANGED)
    with events.acting([UNIT], EventKind.CHANGED):
        pass
    events.take(CHANGED)
    assert reported == []
    events.take(CHANGED)
    assert reported == [CHANGED]


def test_a_change_long_after_one_of_our_own_is_news(
    events: EventFilter, reported: list[RuntimeEvent], times: list[float]
) -> None:
    with events.acting([UNIT], EventKind.CHANGED):
        pass
    times[0] += CHANGE_SECONDS + 1
    events.take(CHANGED)
    assert reported == [CHANGED]
