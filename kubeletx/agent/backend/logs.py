"""Container logs for the admin socket: finds the log file of a container, which `LogReader` reads."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from kubeletx.api import NotFound, UnitSummary
from kubeletx.pods import LogReader, NodeContext, PodExecutor, PodWorker, log_path, newest
from kubeletx.pods import LogSelection as ReaderOptions
from kubeletx.server.views import LogOptions

from .seen import require_seen


class PodLogs:
    """Finds and opens log files of containers. Each start of a container (an attempt) has a log file of its own."""

    def __init__(self, context: NodeContext, services: PodExecutor, reader: LogReader) -> None:
        self._context = context
        self._services = services
        self._reader = reader

    async def open(self, worker: PodWorker, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """Read the log of the newest attempt, or with `options.previous` of the previous one.

        Raises NotFound if there is no such attempt.
        """
        attempt, unit = self._attempt(worker, container, previous=options.previous)
        path = self._context.log_directory(worker.desired.pod) / log_path(container, attempt)
        since = options.since_at
        if since is None and options.since_seconds is not None:
            since = _ago(self._services.clock.now(), options.since_seconds)

        def is_running() -> bool:
            now = newest(worker.facts, container)
            return now is not None and unit is not None and now.id == unit.id and now.state.is_alive

        return self._reader.read(
            path,
            ReaderOptions(
                follow=options.follow,
                timestamps=options.timestamps,
                tail_lines=options.tail_lines,
                since=since,
                limit_bytes=options.limit_bytes,
            ),
            is_running=is_running,
        )

    def _is_last(self, worker: PodWorker, container: str, unit: UnitSummary) -> bool:
        """Return True if the pod's status shows `unit`, the newest one, as the container's last state.

        This is so while the container waits for its restart.
        """
        status = self._services.board.statuses.get(worker.uid)
        if status is None:
            return False
        for one in (*status.init_container_statuses, *status.container_statuses):
            ended = one.last_state.terminated if one.last_state is not None else None
            if one.name == container and ended is not None:
                return (ended.container_id or "").endswith(unit.id)
        return False

    def _attempt(
        self, worker: PodWorker, container: str, *, previous: bool
    ) -> tuple[int, UnitSummary | None]:
        unit = newest(worker.facts, container)
        if unit is None:
            require_seen(self._services, worker)
            raise NotFound(
                f"container {container} of pod {worker.desired.ref} has not started yet, so it has no log"
            )
        if not previous:
            return unit.attempt, unit
        if self._is_last(worker, container, unit):
            return unit.attempt, None
        if unit.attempt == 0:
            raise NotFound(f"previous terminated container {container} of pod {worker.desired.ref} not found")
        # Reboots of a machine count too, so the attempt before is not always one less.
        snapshot = worker.facts.snapshot
        older = snapshot.units_named(container)[1:] if snapshot is not None else ()
        return max((one.attempt for one in older), default=unit.attempt - 1), None


def _ago(now: datetime, seconds: float) -> datetime | None:
    """Time `seconds` ago; None if it is before the smallest datetime."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None
