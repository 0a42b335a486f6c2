"""`Store`: the only access to the state database.

    loop ── write, read, write_later ──▶ WorkQueue ──▶ thread "store" ── one transaction ──▶ SQLite (WAL)
         ◀──────────── results after the commit ────────────┘

The thread commits all waiting writes in one transaction, so a hundred concurrent writes cost a few disk
synchronisations. Each write runs in a savepoint, so that a failed write undoes only itself. History (`write_later`) is
committed with the next durable write or after about a second. Writes and history are made in the order in which they
were queued, so that older history does not undo a durable write.

While the disk is full or the file cannot be used, durable writes and reads raise Unavailable, and a limited amount of
history waits in memory. Every new write tries the file again, so recovery needs no operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any, Self, TypeVar

import structlog
from sqlalchemy import MetaData
from sqlalchemy.engine import Connection

from kubeletx.api import KubeletxError, Unavailable

from .engine import IntegrityError, connect, driver, is_of_the_file, set_aside, synchronise, translate
from .queue import Batch, History, QueuedWork, Work, WorkQueue

log = structlog.get_logger(__name__)
T = TypeVar("T")

_RETRY_SECONDS = 5.0


class Store:
    """The state database. All reads and writes run on one daemon thread, which does not delay the process's exit.

    The constructor does not open the file; `begin` does.
    """

    def __init__(
        self, path: Path, *, expected: bool = False, later_seconds: float = 1.0, later_limit: int = 10_000
    ) -> None:
        """`expected`: the agent has run with this root directory before, so a missing file is reported by `lost`.

        `later_seconds`: longest delay of the writes of `write_later`. `later_limit`: most of these writes that are kept
        in memory while the file cannot be written.
        """
        self.path = path
        self._tables: tuple[MetaData, ...] = ()
        self._queue = WorkQueue(later_seconds=later_seconds, later_limit=later_limit)
        self._connection: Connection | None = None
        self._problem: Exception | None = None
        self._lost: str | None = None
        self._durable = True
        self._expected = expected
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store", daemon=True)

    @classmethod
    async def open(
        cls,
        path: Path,
        tables: Iterable[MetaData],
        *,
        expected: bool = False,
        later_seconds: float = 1.0,
        later_limit: int = 10_000,
    ) -> Self:
        """Make a store with the parameters of the constructor, call `begin`, and return the store."""
        store = cls(path, expected=expected, later_seconds=later_seconds, later_limit=later_limit)
        await store.begin(tables)
        return store

    async def begin(self, tables: Iterable[MetaData]) -> None:
        """Start the thread, open the database, and create the tables that it lacks; a missing file is created.

        Raises InvalidConfig for a file of a newer schema version. A corrupt file is renamed and a new one created; see
        `lost`. If the file cannot be used now, such as on a full disk, a warning is logged and later writes try again.
        """
        self._tables = tuple(tables)
        self._thread.start()
        try:
            await self.read(lambda _connection: None)
        except Unavailable as error:
            log.warning("Started without the state database", path=str(self.path), err=str(error))
        except BaseException:
            self._queue.close()
            raise

    @property
    def lost(self) -> str | None:
        """Message if the database was lost: the file was missing or unusable when it was opened; None otherwise."""
        return self._lost

    @property
    def dropped(self) -> int:
        """Number of writes of `write_later` that were dropped because the file could not be written."""
        return self._queue.dropped

    @property
    def problem(self) -> Exception | None:
        """Error of the last attempt to open or write the file; None once a commit has succeeded."""
        return self._problem

    async def write(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a transaction on the store's thread, and return its result when the changes are on disk.

        If `work` raises an exception, only its own changes are undone, and the exception is raised here. Raises
        Unavailable if the file cannot be written. A write is completed even if the caller is cancelled.
        """
        return await self._submit(work, is_read=False)

    async def read(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on the store's thread, after all writes queued before it, and return its result.

        `work` must only read: changes that it makes may be lost. Raises Unavailable if the file cannot be used.
        """
        return await self._submit(work, is_read=True)

    def write_later(self, work: Callable[[Connection], Any]) -> None:
        """Queue a write for which the caller does not wait, such as of an event, and return at once.

        The write is made within about a second, or as soon as the file can be written. If too many such writes wait,
        the oldest are dropped.
        """
        self._queue.put_later(work)

    async def close(self, timeout_seconds: float = 5.0) -> None:
        """Make all queued writes and close the file. Gives up after `timeout_seconds`, such as when the disk hangs."""
        if self._thread.ident is None:
            return
        self._queue.close()
        deadline = asyncio.get_running_loop().time() + timeout_seconds
        while not self._closed.is_set() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)  # the loop may be closing: no thread calls into it any more
        if not self._closed.is_set():
            log.warning("Gave up closing the state database", path=str(self.path))

    async def _submit(self, work: Callable[[Connection], T], *, is_read: bool) -> T:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if not self._queue.put(QueuedWork(work, future, loop, is_read)):
            raise Unavailable(f"state database {self.path} is closed")
        return await future

    # --- on the store's thread ---

    def _run(self) -> None:
        while True:
            batch = self._queue.take()
            self._work_off(batch)
            if batch.closing:
                break
        if self._connection is not None:
            with contextlib.suppress(Exception):
                self._connection.close()
                self._connection.engine.dispose()
        self._closed.set()

    def _work_off(self, batch: Batch) -> None:
        writes = [job for job in batch.jobs if not job.is_read]
        reads = [job for job in batch.jobs if job.is_read]
        try:
            connection = self._connected()
            if writes or batch.later:
                self._commit(connection, writes, batch.later)
        except Exception as error:  # noqa: BLE001 - the root of this thread's work
            self._fail(error, writes, batch)
        for job in reads:
            self._read(job)
        _deliver(batch.jobs)

    def _connected(self) -> Connection:
        if self._connection is None:
            self._note_missing()
            try:
                self._connection = connect(self.path, self._tables)
            except IntegrityError as error:
                aside = set_aside(self.path)
                self._lost = f"the state database {self.path} was unusable ({error}); it is kept as {aside}"
                log.warning(
                    "Set the state database aside", path=str(self.path), aside=str(aside), err=str(error)
                )
                self._connection = connect(self.path, self._tables)
            self._durable = True
            synchronise(self._connection, True)
        return self._connection

    def _note_missing(self) -> None:
        if self._expected and not self.path.exists():
            self._lost = f"the state database {self.path} is missing"
            log.warning("Lost the state database", path=str(self.path), err="the file is missing")
        self._expected = False

    def _commit(self, connection: Connection, writes: list[QueuedWork], later: History) -> None:
        if self._durable != bool(writes):
            self._durable = bool(writes)
            synchronise(connection, self._durable)
        with connection.begin():
            jobs = {job.number: job for job in writes}
            works = [*later, *((job.number, job.work) for job in writes)]
            for number, work in sorted(works, key=itemgetter(0)):
                result, error = _run_one(connection, work)
                if (job := jobs.get(number)) is not None:
                    job.result, job.error = result, error
                elif error is not None:
                    log.error("Failed to write history", err=str(error))
        if self._problem is not None:
            self._problem = None
            log.info("Wrote to the state database again", path=str(self.path), dropped=self.dropped)

    def _read(self, job: QueuedWork) -> None:
        try:
            connection = self._connected()
            with connection.begin():
                job.result = job.work(connection)
        except Exception as error:  # noqa: BLE001 - handed to the caller
            job.error = self._translated(error)

    def _fail(self, error: Exception, writes: list[QueuedWork], batch: Batch) -> None:
        ours = self._translated(error)
        if self._problem is None:
            log.warning("Failed to write to the state database", path=str(self.path), err=str(ours))
        self._problem = ours
        for job in writes:
            job.error = ours
        if not batch.closing:
            self._queue.put_back(batch.later, _RETRY_SECONDS)

    def _translated(self, error: Exception) -> Exception:
        if isinstance(error, KubeletxError):
            return error
        return translate(error, self.path) if is_of_the_file(error) else error


def _run_one(connection: Connection, work: Work) -> tuple[Any, Exception | None]:
    """Run one write in a savepoint; returns (result, None), or (None, error) if it failed and was undone.

    An error that concerns the whole database file is raised, since it concerns all writes of the batch.
    """
    raw = driver(connection)  # SQLAlchemy takes longer for a savepoint than SQLite takes for most writes
    raw.execute("SAVEPOINT work")
    try:
        result = work(connection)
    except Exception as error:
        if is_of_the_file(error):  # SQLite may have rolled everything back, the savepoint included
            raise
        raw.execute("ROLLBACK TO work")
        raw.execute("RELEASE work")
        return None, error
    raw.execute("RELEASE work")
    return result, None


def _deliver(jobs: list[QueuedWork]) -> None:
    by_loop: dict[asyncio.AbstractEventLoop, list[QueuedWork]] = {}
    for job in jobs:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, mine in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: no waiter is left
            loop.call_soon_threadsafe(_set_results, mine)


def _set_results(jobs: list[QueuedWork]) -> None:
    for job in jobs:
        if job.future.done():
            continue
        if job.error is None:
            job.future.set_result(job.result)
        else:
            job.future.set_exception(job.error)
