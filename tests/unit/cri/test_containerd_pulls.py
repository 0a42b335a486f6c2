"""What containerd's downloads under way say of a pull."""

from __future__ import annotations

from kubeletx.cri.containerd_runtime import Fetched
from kubeletx.cri.stubs.containerd_content_pb2 import Status


def test_nothing_is_reported_before_something_is_fetched() -> None:
    assert Fetched().see([]) is None


def test_parts_are_added_up_and_what_is_gone_has_arrived() -> None:
    fetched = Fetched()
    first = fetched.see([Status(ref="a", offset=10, total=100), Status(ref="b", offset=0, total=50)])
    later = fetched.see([Status(ref="b", offset=20, total=50)])
    last = fetched.see([])
    assert first is not None
    assert (first.done_bytes, first.total_bytes) == (10, 150)
    assert later is not None
    assert (later.done_bytes, later.total_bytes) == (120, 150)
    assert last is not None
    assert (last.done_bytes, last.total_bytes) == (150, 150)


def test_the_total_is_not_told_while_one_part_s_size_is_not_known() -> None:
    progress = Fetched().see([Status(ref="a", offset=10, total=0), Status(ref="b", offset=5, total=50)])
    assert progress is not None
    assert (progress.done_bytes, progress.total_bytes) == (15, None)
