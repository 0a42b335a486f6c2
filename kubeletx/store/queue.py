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
    """A write or read with a waiting caller."""

    work: Work
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    is_read: bool = False
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Batch:
    """The next work of the thread."""

    jobs: list[QueuedWork]
    later: list[Work]
    closing: bool = False


class WorkQueue:
    """Queue of writes to the database, for its one writer thread.

    `later_limit`: entries of history kept while they cannot be written; the oldest are dropped.
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
        """Queue a job; False once the queue is closing."""
        with self._ready:
            if self._closing:
                return False
            self._jobs.append(job)
            self._ready.notify()
            return True

    def put_later(self, work: Work) -> None:
        """Queue history; drops the oldest entry if full."""
        with self._ready:
            if len(self._later) >= self._later_limit:
                self._later.popleft()
                self.dropped += 1
            self._later.append(work)
            if self._flush_at is None:
                self._flush_at = time.monotonic() + self._later_seconds
                self._ready.notify()

    def close(self) -> None:
        """Refuse new jobs; the next batches empty the queue."""
        with self._ready:
            self._closing = True
            self._ready.notify()

    def take(self) -> Batch:
        """Block until there is work, and return it."""
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
        """Queue history again, as the oldest, after a failed write; it is lost once the queue is closing."""
        with self._ready:
            if self._closing:
                self.dropped += len(later)
                return
            self._later.extendleft(reversed(later))
            while len(self._later) > self._later_limit:
                self._later.popleft()
                self.dropped += 1
            self._flush_at = time.monotonic() + after_seconds
