"""`Processes`: runs drivers and the node's programs, with bounded output, in process groups that can be ended.

    start ─► running ─► exited ─► result
                │          └── pipes that a daemon of the program keeps open are read for DRAIN_SECONDS longer
                └─ cancelled ─► SIGTERM to the group ─► STOP_SECONDS ─► SIGKILL ─► result unknown

A deadline is a cancellation, too: callers use `asyncio.timeout`. A program that exits by itself may leave processes
behind, such as the daemon of a FUSE file system: they are not killed.

A process in an uninterruptible system call outlives SIGKILL. Until it has ended, further calls with its key raise
Unavailable, since both would change the same volume. For the same reason the running processes are recorded in files
(`running`): the next agent process ends what a killed one left, before it calls a driver for any volume.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog

from kubeletx.api import Unavailable
from kubeletx.api.names import Event

from .running import CALL, RunningProcess, group_lives, is_own, read_record, start_time, write_record

log = structlog.get_logger(__name__)

MOST_OUTPUT_BYTES: Final = 1 << 20
DRAIN_SECONDS: Final = 0.3
STOP_SECONDS: Final = 0.4
KILL_SECONDS: Final = 0.4


class ProcessResult(msgspec.Struct, frozen=True):
    """Result of a program that has exited. `is_cut`: it printed more than `MOST_OUTPUT_BYTES`, and was killed."""

    exit_code: int
    stdout: bytes
    stderr: bytes
    is_cut: bool = False


class Processes:
    """Runs programs as children of this process, each in a session of its own."""

    def __init__(self, directory: Path) -> None:
        """`directory`: for records of running programs; `open` makes it."""
        self._directory = directory
        self._is_warned = False
        self._stuck: dict[str, int] = {}
        """Processes that did not end when they were killed, by key."""

    async def open(self) -> None:
        """End the programs that an earlier process of the agent has left running. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = [path for path in self._directory.iterdir() if not is_own(path)]
        left = [one for path in paths for one in read_record(path)]
        await asyncio.gather(*(self._end_left(one) for one in left))
        for path in paths:
            path.unlink(missing_ok=True)

    async def run(
        self, program: Sequence[str], *, key: str = "", environment: Mapping[str, str]
    ) -> ProcessResult:
        """Run a program and return its result.

        `key`: names what the program changes, such as a volume; empty: nothing. `environment`: all its variables.
        Raises OSError if it cannot be started, and Unavailable while an earlier program with the key cannot be ended.
        If the caller is cancelled, the group of the program is killed before this returns.
        """
        self._check(key)
        call = secrets.token_hex(8)
        record = self._directory / f"{call}.json"
        self._record(record, RunningProcess(key, 0, "", call))
        try:
            return await self._run(program, key, {**environment, CALL: call}, record)
        finally:
            record.unlink(missing_ok=True)

    async def _run(
        self, program: Sequence[str], key: str, environment: Mapping[str, str], record: Path
    ) -> ProcessResult:
        loop = asyncio.get_running_loop()
        starting = loop.create_task(_start(program, environment), name="flexvolume start")
        # asyncio leaves pipes open, and waits for the program's children, if its start is cancelled.
        is_cancelled = await _settled(starting)
        if is_cancelled and starting.exception() is not None:
            raise asyncio.CancelledError
        transport, output = starting.result()
        pid = transport.get_pid()
        try:
            self._record(record, RunningProcess(key, pid, start_time(pid), environment[CALL]))
            if is_cancelled:
                raise asyncio.CancelledError
            await output.finished()
            if output.is_cut:
                await self._end(key, pid, output)
        except BaseException:
            await self._end(key, pid, output)
            raise
        finally:
            transport.close()
        exit_code = transport.get_returncode()
        return ProcessResult(
            -signal.SIGKILL if exit_code is None else exit_code,
            bytes(output.data[1]),
            bytes(output.data[2]),
            output.is_cut,
        )

    def _check(self, key: str) -> None:
        pid = self._stuck.get(key, 0) if key else 0
        if pid and group_lives(pid):
            raise Unavailable(
                f"an earlier call for it does not end although it was killed (process {pid}); its storage may hang",
                reason=Event.FAILED_MOUNT,
            )
        self._stuck.pop(key, None)

    def _record(self, path: Path, record: RunningProcess) -> None:
        """Record a running program. With a full disk it runs without: a release may be what frees space."""
        try:
            write_record(path, record)
        except OSError as error:
            if not self._is_warned:
                self._is_warned = True
                log.warning("Failed to record a running program", path=str(path), err=str(error))

    async def _end(self, key: str, pid: int, output: _Output) -> None:
        """Kill the group of a program; note it as stuck if it does not end."""
        try:
            _signal(pid, signal.SIGTERM, output)
            await output.ended(STOP_SECONDS)
        finally:
            _signal(pid, signal.SIGKILL, output)
        await output.ended(KILL_SECONDS)
        if key and group_lives(pid):
            self._stuck[key] = pid
            log.warning("Failed to end a process with SIGKILL", pid=pid)

    async def _end_left(self, left: RunningProcess) -> None:
        for number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, KILL_SECONDS)):
            if start_time(left.pid) != left.started:
                break
            log.info("Killed a program of an earlier agent process", pid=left.pid, signal=number.name)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(left.pid, number)
            await _gone(left.pid, seconds)
        if start_time(left.pid) == left.started:
            self._stuck[left.key] = left.pid


async def _start(
    program: Sequence[str], environment: Mapping[str, str]
) -> tuple[asyncio.SubprocessTransport, _Output]:
    loop = asyncio.get_running_loop()
    return await loop.subprocess_exec(
        lambda: _Output(loop),
        *program,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=dict(environment),
        cwd="/",
        start_new_session=True,
    )


async def _settled(task: asyncio.Task[Any]) -> bool:
    """Wait until a short task has ended; return True if the caller was cancelled meanwhile."""
    is_cancelled = False
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            is_cancelled = True
    return is_cancelled


class _Output(asyncio.SubprocessProtocol):
    """Output of one program, and its end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.data = {1: bytearray(), 2: bytearray()}
        self.is_cut = False
        self.exited = asyncio.Event()
        self._open = {1, 2}
        self._closed = asyncio.Event()
        self._full: asyncio.Future[None] = loop.create_future()

    @property
    def has_ended(self) -> bool:
        """True if the program has exited and no process keeps its output open."""
        return self.exited.is_set() and self._closed.is_set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        room = MOST_OUTPUT_BYTES - len(self.data[1]) - len(self.data[2])
        self.data[fd] += data[:room]
        if len(data) > room:
            self.is_cut = True
            if not self._full.done():
                self._full.set_result(None)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        self._open.discard(fd)
        if not self._open:
            self._closed.set()

    def process_exited(self) -> None:
        self.exited.set()

    async def finished(self) -> None:
        """Wait until the program has exited and its output is read, or is too much."""
        waiting = asyncio.create_task(self._until_read(), name="flexvolume output")
        try:
            await asyncio.wait((waiting, self._full), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)

    async def ended(self, seconds: float) -> None:
        """Wait until `has_ended`, at most this long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.exited.wait()
                await self._closed.wait()

    async def _until_read(self) -> None:
        await self.exited.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                await self._closed.wait()


def _signal(pid: int, number: signal.Signals, output: _Output) -> None:
    """Send a signal to the group of a program, unless all its processes have ended and its number may be reused."""
    if not output.has_ended:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, number)


async def _gone(pid: int, seconds: float) -> None:
    """Wait until a process that is no child of this one has ended, at most this long."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(descriptor, ended.set)
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await ended.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)
