"""`SnapshotTable` over weeks: what has gone leaves nothing behind."""

from __future__ import annotations

from kubeletx.api import PodUid, SandboxId, SandboxState, SandboxSummary
from kubeletx.runtimes.handles.snapshot_table import SnapshotTable


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
