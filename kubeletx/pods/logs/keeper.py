"""`LogKeeper`: writes and rotates the logs of containers and machines ("units") on all runtimes.

The work depends on the log mode of the runtime (`LogMode`; DECISIONS 18 in docs/decisions/answers.md):

    file       the runtime writes the log; the agent checks every 10 s if it must be rotated, by rename and reopen
    raw-file   the runtime writes raw output; one follower for each unit, also an ended one, copies it to the log
    stream     the runtime streams the output; one writer for each running unit writes the log

The units are read from the runtimes' snapshots, so that nothing is stored and all are found again after a restart. Each
runtime has a rotation task of its own, so that a runtime that hangs does not delay others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import structlog

from kubeletx.api import (
    Blocking,
    Clock,
    KubeletxError,
    LogMode,
    RuntimeName,
    SupportsLogReopen,
    SupportsLogStream,
    UnitId,
    UnitState,
    UnitSummary,
)
from kubeletx.kube.validation import words
from kubeletx.runtimes.handles.checked import wrong_output
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.runtimes.handles.snapshots import PodSnapshot

from ..model.node_context import NodeContext
from ..workloads.power import RESTING
from .file_watch import FileWatcher
from .format import log_path
from .raw_files import RawLogFollower, keep_stream
from .rotation import LogRotator, OpenLog, RotationLimits

log = structlog.get_logger(__name__)

KEEPING_SECONDS = 1.0
"""Interval of checks for new units, if any runtime leaves the writing of logs to the agent (raw-file, stream)."""


class LogKeeper:
    """Runs one task for each log that the agent itself writes, and rotates the logs that runtimes write."""

    def __init__(
        self,
        *,
        handles: Callable[[], tuple[RuntimeHandle, ...]],
        context: NodeContext,
        blocking: Blocking,
        clock: Clock,
        watcher: FileWatcher,
        limits: RotationLimits | None = None,
    ) -> None:
        """`handles`: returns all runtimes (`RuntimeRegistry.handles`)."""
        self._handles = handles
        self._context = context
        self._blocking = blocking
        self._clock = clock
        self._watcher = watcher
        self._limits = limits or RotationLimits()
        self._rotator = LogRotator(blocking=blocking, clock=clock, limits=self._limits)
        self._wake = asyncio.Event()
        self._writers: dict[UnitId, asyncio.Task[None]] = {}
        self._finished: set[UnitId] = set()
        self._rotations: dict[RuntimeName, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """Check for new units now instead of at the next interval; call it after a unit was started."""
        self._wake.set()

    async def run(self) -> None:
        """Write and rotate logs until cancelled."""
        rotate_at = self._clock.monotonic() + self._limits.interval_seconds
        async with asyncio.TaskGroup() as group:
            while True:
                self._wake.clear()
                keeps = self._start_writers(group)
                if self._clock.monotonic() >= rotate_at:
                    self._rotate(group)
                    rotate_at = self._clock.monotonic() + self._limits.interval_seconds
                look_at = self._clock.monotonic() + KEEPING_SECONDS if keeps else rotate_at
                cancel = self._clock.call_at(min(look_at, rotate_at), self._wake.set)
                try:
                    await self._wake.wait()
                finally:
                    cancel()

    def _rotate(self, group: asyncio.TaskGroup) -> None:
        for handle in self._handles():
            running = self._rotations.get(handle.name)
            if _mode(handle) is not LogMode.FILE or (running is not None and not running.done()):
                continue
            logs = list(self._open_logs(handle))
            if logs:
                self._rotations[handle.name] = group.create_task(
                    self._rotator.rotate_all(logs), name=f"runtime-{handle.name}-log-rotation"
                )

    def _open_logs(self, handle: RuntimeHandle) -> Iterator[OpenLog]:
        runtime = handle.capability(SupportsLogReopen)
        if runtime is None:
            return
        for snapshot, unit in _units(handle):
            # Frozen units write nothing. To look at 200 logs costs 3 ms of CPU time, six times a minute.
            if unit.state.is_alive and unit.state not in RESTING:
                yield OpenLog(
                    path=self._log_file(snapshot, unit),
                    reopen=partial(_reopen, handle, runtime, unit.id),
                    pod=_ref(snapshot),
                    container=unit.name,
                )

    def _start_writers(self, group: asyncio.TaskGroup) -> bool:
        """Start a task for each log that the agent must write and that has no task yet.

        Return True if any runtime leaves the writing of logs to the agent.
        """
        present: set[UnitId] = set()
        keeps = False
        for handle in self._handles():
            mode = _mode(handle)
            if mode is None or mode is LogMode.FILE:
                continue
            keeps = True
            for snapshot, unit in _units(handle):
                present.add(unit.id)
                if unit.state.is_alive:
                    self._finished.discard(unit.id)  # a machine that was switched off and on again
                if unit.id in self._writers or unit.id in self._finished:
                    continue
                if mode is LogMode.RAW_FILE or unit.state.is_alive:
                    self._writers[unit.id] = group.create_task(
                        self._write(handle, snapshot, unit, mode), name=f"log-{unit.name}-{unit.id[:12]}"
                    )
        self._finished &= present
        return keeps

    async def _write(
        self, handle: RuntimeHandle, snapshot: PodSnapshot, unit: UnitSummary, mode: LogMode
    ) -> None:
        log_file = self._log_file(snapshot, unit)

        def is_running() -> bool:
            now = handle.snapshot(snapshot.uid)
            return now is not None and any(
                listed.id == unit.id and not _has_ended(listed) for listed in now.units
            )

        try:
            if mode is LogMode.RAW_FILE:
                await RawLogFollower(
                    log_file,
                    blocking=self._blocking,
                    clock=self._clock,
                    watcher=self._watcher,
                    limits=self._limits,
                ).run(is_running)
            else:
                await self._write_stream(handle, unit, log_file)
        except (KubeletxError, OSError) as err:
            if isinstance(err, FileNotFoundError) and not log_file.parent.exists():
                return  # the log has gone with its pod
            log.warning("Failed to keep log", pod=_ref(snapshot), container=unit.name, err=str(err))
            await self._clock.sleep(self._limits.interval_seconds)
        except Exception:  # the logs of other runtimes go on
            log.exception("Failed to keep log with a bug", pod=_ref(snapshot), container=unit.name)
            await self._clock.sleep(self._limits.interval_seconds)
        else:  # after an error the next round starts a new writer: the log of an ended unit is not complete
            if not is_running():
                self._finished.add(unit.id)
        finally:
            self._writers.pop(unit.id, None)

    async def _write_stream(self, handle: RuntimeHandle, unit: UnitSummary, log_file: Path) -> None:
        runtime = handle.capability(SupportsLogStream)
        if runtime is None:
            return
        await keep_stream(
            handle.stream("log_stream", lambda: runtime.log_stream(unit.id), wrong_output),
            log_file,
            blocking=self._blocking,
            clock=self._clock,
            limits=self._limits,
        )

    def _log_file(self, snapshot: PodSnapshot, unit: UnitSummary) -> Path:
        sandbox = snapshot.sandboxes[0]
        directory = f"{sandbox.namespace}_{sandbox.name}_{snapshot.uid}"
        return self._context.pod_logs_dir / directory / log_path(unit.name, unit.attempt)


async def _reopen(handle: RuntimeHandle, runtime: SupportsLogReopen, unit_id: UnitId) -> None:
    await handle.ask("reopen_log", lambda: runtime.reopen_log(unit_id))


def _mode(handle: RuntimeHandle) -> LogMode | None:
    return handle.traits.log_mode if handle.traits is not None else None


def _units(handle: RuntimeHandle) -> Iterator[tuple[PodSnapshot, UnitSummary]]:
    """Yield each unit of the runtime with its pod's snapshot; skip units whose names are not safe in a log path."""
    for snapshot in list(handle.pods().values()):
        if not snapshot.sandboxes:
            continue
        pod = snapshot.sandboxes[0]
        if words.dns_label(pod.namespace) or words.dns_subdomain(pod.name) or words.uid(snapshot.uid):
            continue
        for unit in snapshot.units:
            if not words.dns_label(unit.name):
                yield snapshot, unit


def _has_ended(unit: UnitSummary) -> bool:
    return unit.state is UnitState.EXITED


def _ref(snapshot: PodSnapshot) -> str:
    sandbox = snapshot.sandboxes[0]
    return f"{sandbox.namespace}/{sandbox.name}"
