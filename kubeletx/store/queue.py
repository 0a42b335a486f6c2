"""Queue of the store's thread: durable writes, reads, and the bounded backlog of history.

All methods are thread-safe. The thread sleeps without a timeout while the queue is empty.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from typing import Any

from sqlalchemy.engine import Connection

Work = Callable[[Connection], Any]


@dataclass(slots=True, eq=False)
class QueuedWork:
    """Write or read that a caller waits for. `future` and `loop`: the caller's, for the result."""

    work: Work
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    is_read: bool = False
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Batch:
    """Work that the store's thread takes at once; writes and history are committed in one transaction.

    `jobs`: writes and reads with a waiting caller. `later`: history. `closing`: this is the last batch.
    """

    jobs: list[QueuedWork]
    later: list[Work]
    closing: bool = False


class WorkQueue:
    """Work that waits for the database, taken in batches by the store's one thread.

    `later_seconds`: how long history may wait for other writes. `later_limit`: history entries kept while the
    file cannot be written; beyond it the oldest are dropped.
    """

    def __init__(self, *, later_seconds: float, later_limit: int, batch_limit: int = 500) -> None:
        self._ready = Condition()
        self._jobs: deque[QueuedWork] = deque()
        self._later: deque[Work] = deque()
        self._later_seconds = later_seconds
        self._later_limit = later_limit
        self._batch_limit = batch_limit
        self._flush_at: float | None = None
        self._closing = False
        self.dropped = 0

    def put(self, job: QueuedWork) -> bool:
        """Queue a write or read. Returns False, and queues nothing, once `close` was called."""
        with self._ready:
            if self._closing:
                return False
            self._jobs.append(job)
            self._ready.notify()
            return True

    def put_later(self, work: Work) -> None:
        """Queue a history entry; drops the oldest entry if `later_limit` are queued."""
        with self._ready:
            if len(self._later) >= self._later_limit:
                self._later.popleft()
                self.dropped += 1
            self._later.append(work)
            if self._flush_at is None:
                self._flush_at = time.monotonic() + self._later_seconds
                self._ready.notify()

    def close(self) -> None:
        """Refuse new writes and reads. What is queued is still taken."""
        with self._ready:
            self._closing = True
            self._ready.notify()

    def take(self) -> Batch:
        """Block until there is work or the queue is closed, then take it."""
        with self._ready:
            while not self._jobs and not self._closing:
                wait = None if self._flush_at is None else self._flush_at - time.monotonic()
                if wait is not None and wait <= 0:
                    break
                self._ready.wait(wait)
            jobs = list(self._jobs)
            self._jobs.clear()
            count = min(self._batch_limit, len(self._later))
            later = [self._later.popleft() for _ in range(count)]
            self._flush_at = time.monotonic() if self._later else None
            return Batch(jobs, later, closing=self._closing and not self._later)

    def put_back(self, later: list[Work], after_seconds: float) -> None:
        """Queue history again after a failed write, before newer entries. Once the queue is closed, drop it.

        It is tried again with the next batch of writes, at the latest after `after_seconds`.
        """
        with self._ready:
            if self._closing:
                self.dropped += len(later)
                return
            self._later.extendleft(reversed(later))
            while len(self._later) > self._later_limit:
                self._later.popleft()
                self.dropped += 1
            self._flush_at = time.monotonic() + after_seconds
