"""`WorkQueue`: the queue of work for the thread of the store.

It contains durable writes and reads, whose callers wait, and history: writes that may be delayed, such as events, and
of which only a limited number is kept. All methods are thread-safe.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from threading import Condition
from typing import Any

from sqlalchemy.engine import Connection

Work = Callable[[Connection], Any]
History = list[tuple[int, Work]]
"""Writes of history, each with its place in the order of all work."""


@dataclass(slots=True, eq=False)
class QueuedWork:
    """A write or read for which a caller waits.

    `work`: function that is called with the connection. `future`: the caller waits for it; it gets the result or the
    error. `loop`: the caller's event loop. `number`: its place in the order of all work; set by `put`.
    """

    work: Work
    future: asyncio.Future[Any]
    loop: asyncio.AbstractEventLoop
    is_read: bool = False
    number: int = 0
    result: Any = None
    error: BaseException | None = None


@dataclass(slots=True)
class Batch:
    """Work that the thread of the store does together; its writes and history are committed in one transaction.

    `jobs`: writes and reads for which a caller waits. `later`: writes of history. `closing`: this is the last batch.
    """

    jobs: list[QueuedWork]
    later: History
    closing: bool = False


class WorkQueue:
    """Queue of reads and writes of the database; the thread of the store takes them in batches.

    History means writes for which no caller waits, such as of events.
    `later_seconds`: longest time for which history waits to be committed together with other writes. `later_limit`:
    most history entries that are kept while the file cannot be written; the oldest are dropped. `batch_limit`: most
    history entries in a batch without other work. A batch with other work has all history, since that may be older.
    """

    def __init__(self, *, later_seconds: float, later_limit: int, batch_limit: int = 500) -> None:
        self._ready = Condition()
        self._jobs: deque[QueuedWork] = deque()
        self._later: deque[tuple[int, Work]] = deque()
        self._numbers = itertools.count()
        self._later_seconds = later_seconds
        self._later_limit = later_limit
        self._batch_limit = batch_limit
        self._flush_at: float | None = None
        self._closing = False
        self.dropped = 0

    def put(self, job: QueuedWork) -> bool:
        """Queue a write or read and return True; return False, and queue nothing, after `close`."""
        with self._ready:
            if self._closing:
                return False
            job.number = next(self._numbers)
            self._jobs.append(job)
            self._ready.notify()
            return True

    def put_later(self, work: Work) -> None:
        """Queue a write of history; drop the oldest one if `later_limit` are queued already."""
        with self._ready:
            if len(self._later) >= self._later_limit:
                self._later.popleft()
                self.dropped += 1
            self._later.append((next(self._numbers), work))
            if self._flush_at is None:
                self._flush_at = time.monotonic() + self._later_seconds
                self._ready.notify()

    def close(self) -> None:
        """Refuse new writes and reads. Work that is queued already is still taken."""
        with self._ready:
            self._closing = True
            self._ready.notify()

    def take(self) -> Batch:
        """Block until there is work to do or the queue is closed, then remove the work from the queue and return it.

        If only history is queued, block until its delay has passed.
        """
        with self._ready:
            while not self._jobs and not self._closing:
                wait = None if self._flush_at is None else self._flush_at - time.monotonic()
                if wait is not None and wait <= 0:
                    break
                self._ready.wait(wait)
            jobs = list(self._jobs)
            self._jobs.clear()
            count = len(self._later) if jobs else min(self._batch_limit, len(self._later))
            later = [self._later.popleft() for _ in range(count)]
            self._flush_at = time.monotonic() if self._later else None
            return Batch(jobs, later, closing=self._closing and not self._later)

    def put_back(self, later: History, after_seconds: float) -> None:
        """Queue history again after a failed write, before newer entries; drop it if the queue is closed.

        It is written with the next batch, at the latest after `after_seconds`.
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
