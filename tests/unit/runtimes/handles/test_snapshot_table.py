"""`SnapshotTable`: what has gone leaves nothing behind over weeks; no event is lost during a look."""

from __future__ import annotations

from kubeletx.api import (
    PodUid,
    SandboxId,
    SandboxState,
    SandboxSummary,
    UnitId,
    UnitState,
    UnitStatus,
    UnitSummary,
)
from kubeletx.runtimes.handles.snapshot_table import SnapshotTable

UNIT = UnitSummary(
    id=UnitId("c"),
    sandbox_id=SandboxId("s"),
    uid=PodUid("u"),
    name="main",
    attempt=0,
    state=UnitState.RUNNING,
    created_at_ns=1,
)


def sandbox(number: int) -> SandboxSummary:
    return SandboxSummary(
        id=SandboxId(f"s{number}"),
        uid=PodUid(f"u{number}"),
        name="web",
        namespace="default",
        attempt=0,
        state=SandboxState.READY,
        created_at_ns=number,
    )


def test_a_pod_that_a_late_list_still_showed_is_not_remembered_for_ever() -> None:
    table = SnapshotTable()
    for number in range(100):
        at = float(number)
        table.apply_lists([sandbox(number)], [], began=at)
        table.note_removed(f"s{number}", at=at + 0.5)
        table.forget(PodUid(f"u{number}"))
        table.apply_lists([sandbox(number)], [], began=at + 0.4)  # began before the removal
    table.apply_lists([], [], began=1000.0)  # far beyond what is kept of removals
    assert not table.pods
    assert sum(len(kept) for kept in vars(table).values() if isinstance(kept, dict | set)) == 0


def test_what_is_forgotten_of_an_old_look_does_not_make_the_pod_unseen() -> None:
    table = SnapshotTable()
    uid = PodUid("u1")
    table.apply_look(uid, [], [], sandbox_status=None, statuses={}, began=1.0)
    table.apply_lists([], [], began=1000.0)
    assert table.looked_at(uid) == 1000.0


def test_an_event_during_a_look_makes_the_next_look_query_the_status_again() -> None:
    table = SnapshotTable()
    unit, status = UNIT, UnitStatus(summary=UNIT)
    table.note_unit(status, at=1.0)

    def look(began: float) -> None:
        statuses = {unit.id: status}
        table.apply_look(unit.uid, [], [unit], sandbox_status=None, statuses=statuses, began=began)

    table.mark_stale(unit.id, at=9.0)
    look(began=10.0)
    assert table.stale_units(unit.uid, [unit]) == []
    table.mark_stale(unit.id, at=10.2)  # after the runtime's answer to a look that began before
    look(began=10.0)
    table.note_unit(status, at=10.5)
    assert table.stale_units(unit.uid, [unit]) == [unit.id]
    look(began=11.0)
    assert table.stale_units(unit.uid, [unit]) == []
