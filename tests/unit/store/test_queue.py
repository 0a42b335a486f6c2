"""`WorkQueue`: what waits for the store's thread."""

from __future__ import annotations

from kubeletx.store.queue import WorkQueue


def test_closing_ends_although_no_history_can_be_written() -> None:
    queue = WorkQueue(later_seconds=60, later_limit=10_000, batch_limit=500)
    for _ in range(1200):
        queue.put_later(lambda _connection: None)
    queue.close()
    for _ in range(10):
        batch = queue.take()
        if batch.closing:
            break
        queue.put_back(batch.later, 5.0)  # the disk is full
    assert batch.closing
    assert queue.dropped == 1000
