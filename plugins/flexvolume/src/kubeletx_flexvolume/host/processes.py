"""`Processes`: runs drivers and the node's programs, and remembers the programs that may still change a volume.

A program that exits by itself may leave processes behind, such as the daemon of a FUSE file system: they are not killed.
A call that is cancelled or floods its output is ended with its process group. A deadline is a cancellation, too: callers
use `asyncio.timeout`.

A process in an uninterruptible system call outlives SIGKILL. Until it has ended, further calls with its key raise
Unavailable, since both would change the same volume. For the same reason the running programs are recorded in files: the
next agent process ends what a killed one left, before it calls a driver for any volume. A record is written before its
program is started. Until it has the process ID, the program is found by the variable `CALL` of its environment. Numbers
of processes are reused, so that the time of the start is compared, too. Records are not flushed to the disk, since no
program survives a reboot.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import Unavailable
from kubeletx.api.names import Event
from kubeletx.linux.boot import boot_id
from kubeletx.linux.files import replace_unflushed
from kubeletx.linux.processes import ENDED, read_stat
from kubeletx.linux.programs import Ending, ProgramResult, run_program

log = structlog.get_logger(__name__)

CALL: Final = "KUBELETX_CALL"
"""Environment variable with the ID of a call."""
ENDING: Final = Ending(steps=((signal.SIGTERM, 0.4), (signal.SIGKILL, 0.4)), leaves_daemon=True)


class RunningProcess(msgspec.Struct, frozen=True):
    """Record of a running program. `key`: as in `Processes.run`. `started`: as returned by `start_time`.

    `call`: ID of the call. `pid` 0: it was about to be started.
    """

    key: str
    pid: int
    started: str
    call: str = ""


class Processes:
    """Runs programs as children of this process, each in a session of its own."""

    def __init__(
        self,
        directory: Path,
        *,
        run: Callable[..., Awaitable[ProgramResult]] = run_program,
        lives: Callable[[int], bool] | None = None,
    ) -> None:
        """`directory`: for records of running programs; `open` makes it.

        `run`: runs a program, as `run_program` does. `lives`: returns True if a process of this group has not ended.
        """
        self._directory = directory
        self._run = run
        self._lives = lives or group_lives
        self._is_warned = False
        self._stuck: dict[str, int] = {}
        """Processes that did not end when they were killed, by key."""

    async def open(self) -> None:
        """End the programs that an earlier process of the agent has left running. Raises OSError."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        paths = [path for path in self._directory.iterdir() if not _is_own(path)]
        left = [process for path in paths for process in _left_running(path)]
        await asyncio.gather(*(self._end(process) for process in left))
        for path in paths:
            path.unlink(missing_ok=True)

    async def run(
        self, program: Sequence[str], *, key: str = "", environment: Mapping[str, str]
    ) -> ProgramResult:
        """Run a program and return its result.

        `key`: names what the program changes, such as a volume; empty: nothing. `environment`: all its variables.
        Raises OSError if it cannot be started, and Unavailable while an earlier program with the key cannot be ended.
        If the caller is cancelled, the group of the program is killed before this returns.
        """
        self._check(key)
        call = secrets.token_hex(8)
        record, pid = self._directory / f"{call}.json", 0

        def started(number: int) -> None:
            nonlocal pid
            pid = number
            self._record(record, RunningProcess(key, pid, start_time(pid), call))

        self._record(record, RunningProcess(key, 0, "", call))
        was_killed = True
        try:
            result = await self._run(
                program,
                seconds=None,
                environment={**environment, CALL: call},
                ending=ENDING,
                started=started,
            )
            was_killed = result.is_cut
            return result
        finally:
            if was_killed and key and pid and self._lives(pid):
                self._stuck[key] = pid
                log.warning("Failed to end a process with SIGKILL", pid=pid)
            record.unlink(missing_ok=True)

    def _check(self, key: str) -> None:
        pid = self._stuck.get(key, 0) if key else 0
        if pid and self._lives(pid):
            raise Unavailable(
                f"an earlier call for it does not end although it was killed (process {pid}); its storage may hang",
                reason=Event.FAILED_MOUNT,
            )
        self._stuck.pop(key, None)

    def _record(self, path: Path, record: RunningProcess) -> None:
        """Record a running program. With a full disk it runs without: a release may be what frees space."""
        try:
            replace_unflushed(path, msgspec.json.encode(record))
        except OSError as error:
            if not self._is_warned:
                self._is_warned = True
                log.warning("Failed to record a running program", path=str(path), err=str(error))

    async def _end(self, left: RunningProcess) -> None:
        for number, seconds in ENDING.steps:
            if start_time(left.pid) != left.started:
                break
            log.info("Killed a program of an earlier agent process", pid=left.pid, signal=number.name)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(left.pid, number)
            await _gone(left.pid, seconds)
        if start_time(left.pid) == left.started:
            self._stuck[left.key] = left.pid


def start_time(pid: int) -> str:
    """Return when a process was started, as boot ID and ticks since the boot; empty if it has ended."""
    stat = read_stat(pid)
    if stat is None or stat.state in ENDED:
        return ""
    return f"{boot_id()} {stat.started_ticks}"


def group_lives(pid: int) -> bool:
    """Return True if a process of the group `pid` has not ended. Zombies have ended, also if their parent ignores them."""
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    every = (read_stat(name) for name in os.listdir("/proc") if name.isdigit())
    return any(stat is not None and stat.group == pid and stat.state not in ENDED for stat in every)


def _left_running(path: Path) -> list[RunningProcess]:
    """Return the programs that run and whose record is in this file, each with its process group; none if it is damaged."""
    record = _read(path)
    if record is None:
        return []
    if record.pid:
        is_same = bool(record.started) and start_time(record.pid) == record.started
        return [record] if is_same else []
    groups = set(_groups_of(record.call)) if record.call else set()
    return [RunningProcess(record.key, pid, start_time(pid), record.call) for pid in sorted(groups)]


def _is_own(path: Path) -> bool:
    """Return True if the record in this file is of a child of this process."""
    record = _read(path)
    stat = read_stat(record.pid) if record is not None and record.pid else None
    return stat is not None and stat.parent == os.getpid()


def _groups_of(call: str) -> Iterator[int]:
    """Yield the process groups of all processes that a call has started."""
    wanted = f"{CALL}={call}".encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with suppress(OSError):
            variables = Path(f"/proc/{name}/environ").read_bytes().split(b"\0")
            if wanted in variables and (stat := read_stat(name)) is not None:
                yield stat.group


def _read(path: Path) -> RunningProcess | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunningProcess)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


async def _gone(pid: int, seconds: float) -> None:
    """Wait until a process that is not a child of this one has ended, at most this long."""
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
