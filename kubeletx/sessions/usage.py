"""`SessionUsage`: what each session and each application has used, for billing.

    Sessions ─► listener ─► PodMeter of its pod ─► reading of the pod ─► costs ─► row, total of the application
    ended session ─► last reading of its pod ─► a line of usage.jsonl

A session is counted from READY to its end. Its pod is read when a session opens or ends, and once a minute between. All
rows are kept over restarts; the time without an agent counts, too. Nothing is read or written while no session is open.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Set
from datetime import datetime
from functools import partial
from typing import Final

import structlog
from msgspec.structs import replace

from kubeletx.api import Blocking, Clock, KubeletxError, PodUid, Unavailable
from kubeletx.api.counting import Metric, Samples, counter

from .meter import PodMeter, PodReading, SessionCosts
from .model import Session
from .records import RETRY_SECONDS
from .service import Sessions
from .usage_records import UsageFile, UsageRecords, UsageRow, UsageTotal

log = structlog.get_logger(__name__)

ReadPods = Callable[[Set[PodUid]], Awaitable[Mapping[PodUid, PodReading]]]
"""Reads the counters of pods; pods that are not on this node are left out."""

_READ_SECONDS: Final = 10.0
_LAST_SECONDS: Final = 180.0
"""Longest time for which an ended session waits for the CPU of its last reading."""
_KEEP_SECONDS: Final = 600.0
_PAUSE_SECONDS: Final = 0.1
"""Pause between two readings, so that many sessions that begin together are one reading."""
TOTALS_LIMIT: Final = 200
"""Most applications with a total of their own. The least recently used total is merged into `OTHERS`."""
OTHERS: Final = "/"


def _key(session: Session) -> str:
    return f"{session.id} {session.created_at.isoformat()}"


class SessionUsage:
    """Usage of all sessions that are open or ended in the last ten minutes, and totals of applications."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        read: ReadPods,
        records: UsageRecords,
        file: UsageFile,
        blocking: Blocking,
        clock: Clock,
        interval_seconds: float = 60.0,
        totals_limit: int = TOTALS_LIMIT,
    ) -> None:
        """`interval_seconds`: time between readings of a pod that has an open session."""
        self.totals = UsageTotals(records, totals_limit)
        self.removed = 0
        self._sessions = sessions
        self._read = read
        self._records = records
        self._file = file
        self._blocking = blocking
        self._clock = clock
        self._interval_seconds = interval_seconds
        self._rows: dict[str, UsageRow] = {}
        self._meters: dict[PodUid, PodMeter] = {}
        self._metered: dict[PodUid, set[str]] = {}
        """Keys of the sessions of each meter, with those that wait for their last reading."""
        self._unexported: set[str] = set()
        self._has_failed = False
        """The last lines could not be written, which is logged."""
        self._began = clock.now()
        self._due: set[PodUid] = set()
        self._news = asyncio.Event()
        self._reading = asyncio.Lock()
        sessions.subscribe(self._changed)

    # --- views --------------------------------------------------------------------------------------

    def rows(self) -> tuple[UsageRow, ...]:
        return tuple(self._rows.values())

    def find(self, session: Session) -> UsageRow | None:
        """Return the usage of a session; None if it was never open."""
        return self._rows.get(_key(session))

    async def refresh(self) -> None:
        """Read the pods of all open sessions now."""
        await self._count(set(self._meters))

    def metrics(self) -> Iterator[Metric]:
        """Yield the totals of applications, and what housekeeping removed."""
        yield from self.totals.metrics()
        yield counter(
            "kubeletx_session_usage_removed_total",
            "Rows of ended sessions that were removed from the state database.",
            lambda: self.removed,
        )

    # --- changes of sessions ------------------------------------------------------------------------

    def _changed(self, session: Session) -> None:
        if not self._records.is_loaded and session.created_at < self._began:
            return  # it has a stored row, with which it is counted later
        key, now = _key(session), self._clock.monotonic()
        row = self._rows.get(key)
        if row is None and session.ready_at is not None and not session.is_over:
            self._rows[key] = row = UsageRow(
                key=key,
                id=session.id,
                pod_id=session.pod_id,
                pod_uid=session.pod_uid,
                application=session.application,
                origin=session.origin,
                created_at=session.created_at,
                opened_at=session.ready_at,
                counted_at=self._clock.now(),
            )
            self._meter(row, now).open(key, now, clients=len(session.clients))
        elif row is None or row.closed_at is not None:
            return
        elif session.is_over:
            self._meters[row.pod_uid].close(key, now)
            self._rows[key] = replace(row, closed_at=session.closed_at, reason=session.reason)
        else:
            self._meters[row.pod_uid].set_clients(key, now, len(session.clients))
            return
        self._due.add(row.pod_uid)
        self._news.set()

    def _meter(self, row: UsageRow, at: float) -> PodMeter:
        self._metered.setdefault(row.pod_uid, set()).add(row.key)
        return self._meters.setdefault(row.pod_uid, PodMeter(at, row.reading))

    # --- counting -----------------------------------------------------------------------------------

    async def _count(self, uids: Set[PodUid]) -> None:
        async with self._reading:
            # A session that ends during the reading waits for the next one: its logs may have grown.
            metered = {key for uid in uids for key in self._metered.get(uid, ())}
            ended = {key for key in metered if self._rows[key].closed_at is not None}
            try:
                async with asyncio.timeout(_READ_SECONDS):
                    readings = await self._read(uids) if uids else {}
            except (KubeletxError, TimeoutError) as error:
                log.warning("Failed to read the usage of pods with sessions", err=str(error))
                readings = dict.fromkeys(uids, PodReading())
            for uid in uids & self._meters.keys():
                self._settle(uid, readings.get(uid), ended)

    def _settle(self, uid: PodUid, found: PodReading | None, ended: Set[str]) -> None:
        """Add the usage of a pod since its last reading to rows and totals; `ended` sessions leave the meter.

        `found` None: the pod is gone. If the CPU of another pod is not known, ended sessions wait for the next reading.
        """
        meter, keys, now = self._meters[uid], self._metered[uid], self._clock.now()
        reading = found or PodReading()
        waiting = ended
        if not meter.read(reading, self._clock.monotonic()) and found is not None:
            ended = {key for key in waiting if self._rows[key].has_waited(now, _LAST_SECONDS)}
        taken, logs = meter.take(), (meter.reading or reading).logs
        for key in sorted(keys):
            row = self._rows[key]
            costs = taken.get(key, SessionCosts())
            row = replace(row, costs=row.costs.plus(costs), counted_at=now, reading=meter.reading)
            if row.logs_at_open is None:
                row = replace(row, logs_at_open=logs)
            if row.logs_at_close is None and (key in ended or (key in waiting and reading.logs)):
                row = replace(row, logs_at_close=logs)
            if key in ended:
                self._unexported.add(key)
            self._note(row)
            self.totals.add(row.total_key, costs, now)
        keys -= ended
        if not keys:
            del self._meters[uid], self._metered[uid]

    def _note(self, row: UsageRow) -> None:
        self._rows[row.key] = row
        self._records.note(row)

    # --- ended sessions -----------------------------------------------------------------------------

    async def _export(self) -> None:
        rows = [self._rows[key] for key in self._unexported]
        if not rows:
            return
        try:
            await self._blocking(self._file.append, rows)
        except (OSError, Unavailable) as error:  # they are tried again with the next reading
            if not self._has_failed:
                log.warning(
                    "Failed to write the usage of ended sessions", file=self._file.path, err=str(error)
                )
            self._has_failed = True
            return
        self._has_failed = False
        for row in rows:
            self._unexported.discard(row.key)
            self._note(replace(row, is_exported=True))

    def _forget(self) -> None:
        now = self._clock.now()
        for row in tuple(self._rows.values()):
            if row.is_exported and (now - row.counted_at).total_seconds() >= _KEEP_SECONDS:
                del self._rows[row.key]
                self._records.forget(row)
                self.removed += 1

    # --- life ---------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Read stored usage. Call it when the sessions are loaded; those that are still open are counted further.

        If the database cannot be read now, `run` reads it later, and nothing is stored before.
        """
        stored = await self._records.load() if self._sessions.is_loaded else None
        if stored is None:
            return
        rows, totals = stored
        self.totals.load(totals)
        for row in rows:
            self._resume(row)
        for session in self._sessions.all():
            self._changed(session)

    def _resume(self, row: UsageRow) -> None:
        found = self._sessions.find(row.id)
        session = found if found is not None and _key(found) == row.key else None
        self._rows[row.key] = row
        if session is not None and not session.is_over:
            at = self._clock.monotonic() - max(0.0, (self._clock.now() - row.counted_at).total_seconds())
            self._meter(row, at).open(row.key, at, clients=len(session.clients), opened=0)
            return
        if not row.is_counted:  # it ended while the agent did not run, or just before
            logs = row.reading.logs if row.reading is not None else ()
            row = replace(row, closed_at=row.counted_at, logs_at_close=logs)
            if session is not None:
                row = replace(row, closed_at=session.closed_at, reason=session.reason)
            self._note(row)
        if not row.is_exported:
            self._unexported.add(row.key)
            self._news.set()

    async def run(self) -> None:
        """Count until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._records.run(), name="session usage records")
            group.create_task(self._load_later(), name="load of session usage")
            all_at = self._clock.monotonic() + self._interval_seconds
            while True:
                await self._wait(all_at)
                due, self._due = self._due, set()
                if self._clock.monotonic() >= all_at:
                    due = set(self._meters)
                    all_at = self._clock.monotonic() + self._interval_seconds
                    self._forget()
                await self._count(due)
                await self._export()
                await self._clock.sleep(_PAUSE_SECONDS)

    async def _load_later(self) -> None:
        while not self._records.is_loaded:
            await self._clock.sleep(RETRY_SECONDS)
            await self.load()
            self._news.set()

    async def _wait(self, due: float) -> None:
        """Wait for a session that opens or ends, and while there are rows, for the monotonic time `due`."""
        cancel = self._clock.call_at(due, self._news.set) if self._rows else None
        try:
            await self._news.wait()
        finally:
            if cancel is not None:
                cancel()
        self._news.clear()

    async def stop(self) -> None:
        """Count and store all that is open. Call it when `run` has ended."""
        await self.refresh()
        await self._export()
        await self._records.close()


class UsageTotals:
    """Totals by ``namespace/application``, stored at each change. Their number is bounded, and their sum is complete."""

    def __init__(self, records: UsageRecords, limit: int) -> None:
        self.items: dict[str, UsageTotal] = {}
        self._records = records
        self._limit = limit

    def load(self, totals: Iterable[UsageTotal]) -> None:
        """Take the stored totals, and add what was counted before they could be read."""
        counted, self.items = self.items, {total.key: total for total in totals}
        if counted:  # one that was merged into `OTHERS` must not be deleted
            for total in self.items.values():
                self._records.note(total)
        for total in counted.values():
            self.add(total.key, total.costs, total.updated_at)

    def add(self, key: str, costs: SessionCosts, now: datetime) -> None:
        """Add costs to a total. `key`: ``namespace/application``."""
        known = self.items.get(key)
        if known is None and len(self.items) >= self._limit and key != OTHERS:
            oldest = min(self.items.keys() - {OTHERS}, key=lambda one: self.items[one].updated_at)
            total = self.items.pop(oldest)
            self._records.forget(total)
            self.add(OTHERS, total.costs, now)
        costs = known.costs.plus(costs) if known is not None else costs
        self.items[key] = UsageTotal(key=key, costs=costs, updated_at=now)
        self._records.note(self.items[key])

    def metrics(self) -> Iterator[Metric]:
        """Yield one counter for each figure."""
        for field, name, text in (
            ("opened", "sessions_opened", "Sessions that were open."),
            ("open_seconds", "session_open_seconds", "Seconds that sessions were open."),
            ("client_seconds", "session_client_seconds", "Seconds of all clients together."),
            ("cpu_seconds", "session_cpu_seconds", "CPU seconds of pods, divided among open sessions."),
            ("memory_byte_seconds", "session_memory_byte_seconds", "Memory of pods, multiplied by time."),
        ):
            source = partial(self._samples, field)
            yield counter(f"kubeletx_{name}_total", text, source, "namespace", "application")

    def _samples(self, field: str) -> Samples:
        return [(one.labels, getattr(one.costs, field)) for one in self.items.values()]
