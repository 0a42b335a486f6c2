"""Container logs for the admin socket: finds the log file of a container and reads it with `LogReader`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta

from kubeletx.api import NotFound, UnitState, UnitSummary
from kubeletx.pods import LogReader, NodeContext, PodExecutor, PodWorker, log_path
from kubeletx.pods import LogSelection as ReaderOptions
from kubeletx.server.views import LogOptions

from .waiting import require_seen


class PodLogs:
    """Finds and opens log files of containers. Each start of a container (an attempt) writes its own log file."""

    def __init__(self, context: NodeContext, services: PodExecutor, reader: LogReader) -> None:
        self._context = context
        self._services = services
        self._reader = reader

    async def open(self, worker: PodWorker, container: str, options: LogOptions) -> AsyncIterator[bytes]:
        """Find the log file of a container, and return an iterator over its selected lines.

        The log is the newest started attempt's; with `options.previous`, the log of the attempt before the
        newest. Raises NotFound if there was no such attempt, or if it has no log and cannot write one any more,
        Unavailable if the pod's runtime does not answer.
        """
        attempt, unit = self._attempt(worker, container, previous=options.previous)
        path = self._context.log_directory(worker.desired.pod) / log_path(container, attempt)
        since = options.since_at
        if since is None and options.since_seconds is not None:
            since = _ago(self._services.clock.now(), options.since_seconds)

        def is_running() -> bool:
            now = worker.facts.newest(container)
            return now is not None and unit is not None and now.id == unit.id and now.state.is_alive

        if not is_running():
            await self._reader.require(path)
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
        """Return True if the pod's status shows `unit` as the container's last state (``lastState.terminated``).

        `unit`: the newest attempt. It is shown as the last state while the container waits for its restart.
        """
        status = self._services.board.statuses.get(worker.uid)
        if status is None:
            return False
        for container_status in (*status.init_container_statuses, *status.container_statuses):
            ended = (
                container_status.last_state.terminated if container_status.last_state is not None else None
            )
            if container_status.name == container and ended is not None:
                return (ended.container_id or "").endswith(unit.id)
        return False

    def _attempt(
        self, worker: PodWorker, container: str, *, previous: bool
    ) -> tuple[int, UnitSummary | None]:
        unit = worker.facts.newest(container)
        if unit is None:
            require_seen(self._services, worker)
            raise _no_previous(worker, container) if previous else self._not_started(worker, container)
        if not previous:
            return self._newest_started(worker, container, unit)
        if self._is_last(worker, container, unit):
            return unit.attempt, None
        if unit.attempt == 0:
            raise _no_previous(worker, container)
        # A reboot of a virtual machine is counted as an attempt too, so the previous attempt's number may be lower
        # than this one's by more than one.
        snapshot = worker.facts.snapshot
        older = snapshot.units_named(container)[1:] if snapshot is not None else ()
        return max((earlier.attempt for earlier in older), default=unit.attempt - 1), None

    def _newest_started(
        self, worker: PodWorker, container: str, unit: UnitSummary
    ) -> tuple[int, UnitSummary | None]:
        """Return the attempt whose log is shown without `previous`.

        As in the kubelet, that is the attempt before while a container waits for its next start.
        """
        if unit.state is not UnitState.CREATED:
            return unit.attempt, unit
        snapshot = worker.facts.snapshot
        for older in snapshot.units_named(container)[1:] if snapshot is not None else ():
            if older.state is not UnitState.CREATED:
                return older.attempt, None
        raise self._not_started(worker, container)

    def _not_started(self, worker: PodWorker, container: str) -> NotFound:
        """Return the error for a container that no attempt has started, in the kubelet's words."""
        reason, name = self._waiting_reason(worker, container), worker.desired.pod.name
        return NotFound(
            f'container "{container}" in pod "{name}" is waiting to start'
            + (f": {reason}" if reason else " - no logs yet")
        )

    def _waiting_reason(self, worker: PodWorker, container: str) -> str:
        status = self._services.board.statuses.get(worker.uid)
        statuses = (*status.init_container_statuses, *status.container_statuses) if status is not None else ()
        states = (
            container_status.state
            for container_status in statuses
            if container_status.name == container and container_status.state is not None
        )
        waiting = next((state.waiting for state in states), None)
        return waiting.reason or "" if waiting is not None else ""


def _no_previous(worker: PodWorker, container: str) -> NotFound:
    """Return the error for a container that has no attempt before its newest."""
    name = worker.desired.pod.name
    return NotFound(f'previous terminated container "{container}" in pod "{name}" not found')


def _ago(now: datetime, seconds: float) -> datetime | None:
    """Return the time `seconds` before `now`; None if a datetime cannot represent it."""
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return None
