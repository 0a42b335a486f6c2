"""Runs programs such as mount and losetup, each with a deadline.

    started ─► ended                                        code, output
       └─ deadline ─► SIGINT ─ grace ─► SIGKILL ─ grace ─► it hangs in the kernel

A program runs in a process group of its own, which gets the signals. Its output goes to files in memory, so that a
child that keeps the output open delays nothing. A program that survives SIGKILL keeps the lock of its volume (`hold_lock`).
It also keeps running if the waiting task is cancelled: that happens only at the agent's end, when half of a mkfs would
be worse.

A program inherits the open lock file of its volume. The kernel drops the lock when the last process that has the file
open has ended. So the volume remains locked also if the agent that started the program was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import shlex
import shutil
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import TimedOut, Unavailable

from .programs import ProgramResult
from .values import file_stem

GRACE_SECONDS: Final = 15.0
SECRET_FILE: Final = "/proc/self/fd/4"
"""Path at which a program finds its secret (`Commands.run`)."""

_MAX_OUTPUT: Final = 64 * 1024
_KILL_SECONDS: Final = 3.0
_FIRST_FREE: Final = 10
_LOCK, _SECRET = 3, 4
_PROC: Final = Path("/proc")
_LONGEST_COMMAND: Final = 200
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Commands:
    """Runs programs for volumes. `lock_directory`: directory of the volumes' lock files."""

    def __init__(self, lock_directory: Path, *, grace_seconds: float = GRACE_SECONDS) -> None:
        self._lock_directory = lock_directory
        self._grace_seconds = grace_seconds
        self._environment = {
            "PATH": ":".join((os.environ.get("PATH", ""), _PATH)).lstrip(":"),
            "LC_ALL": "C",
            "HOME": "/",
        }
        self._paths: dict[str, str] = {}
        """Paths of programs that were found, by name; a search looks into each directory of PATH."""
        self._left: list[_Program] = []
        """Programs that did not end after SIGKILL."""

    async def run(
        self, command: Sequence[str], *, seconds: float, volume: str = "", secret: bytes | None = None
    ) -> ProgramResult:
        """Run the command and return its result, also if its exit status is not 0.

        `volume`: volume that stays locked until the program has ended; empty: the program changes none. `secret`:
        content of the file `SECRET_FILE` of the program; secrets are never among the arguments. Raises Unavailable if
        the program is not installed or the volume is locked, and TimedOut if the program did not end within `seconds`.
        """
        self._left = [one for one in self._left if not one.reap()]
        path = self._path_of(command[0])
        with contextlib.ExitStack() as stack:
            out, err = stack.enter_context(_memory_file()), stack.enter_context(_memory_file())
            with self._shared(volume, secret) as shared:
                program = _Program(path, command, [(out, 1), (err, 2), *shared], self._environment)
            stack.callback(program.close)
            try:
                async with asyncio.timeout(seconds):
                    code = await program.ended()
            except TimeoutError:
                raise await self._stop(program, seconds) from None
            return ProgramResult(command=program.text, code=code, out=_content(out), err=_content(err))

    def _path_of(self, name: str) -> str:
        """Return the path of a program. Raises Unavailable if it is not installed."""
        path = self._paths.get(name)
        if path is None or not os.access(path, os.X_OK):  # it was not searched for yet, or was removed since
            path = shutil.which(name, path=self._environment["PATH"])
            if path is None:
                raise Unavailable(f"program {name} is not on this node; install it")
            self._paths[name] = path
        return path

    async def _stop(self, program: _Program, seconds: float) -> TimedOut:
        """Stop a program that has missed its deadline, and return the error to raise."""
        problem = f"{program.text} did not end within {seconds:g} s"
        for number, grace in ((signal.SIGINT, self._grace_seconds), (signal.SIGKILL, _KILL_SECONDS)):
            program.signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace):
                    await program.ended()
                return TimedOut(f"{problem}, and was stopped with {number.name}")
        self._left.append(program)
        return TimedOut(
            f"{problem}, and its process {program.pid} does not end after SIGKILL: it hangs in the kernel"
        )

    @contextlib.contextmanager
    def _shared(self, volume: str, secret: bytes | None) -> Iterator[list[tuple[int, int]]]:
        """Yield the descriptors of lock and secret, with their numbers in the program; closed when it has started.

        Only the program keeps the lock. The child that starts the next program has copies of all open descriptors for a
        moment; with a copy of the lock it would hold that beyond the end of this program.
        """
        with contextlib.ExitStack() as stack:
            shared = []
            if volume:
                lock = stack.enter_context(hold_lock(self._lock_directory, volume))
                shared.append((stack.enter_context(_high(lock)), _LOCK))
            if secret is not None:
                shared.append((stack.enter_context(_memory_file(secret)), _SECRET))
            yield shared


class _Program:
    """One running program, which is a child process of this one. `ended` reaps it."""

    def __init__(
        self,
        path: str,
        command: Sequence[str],
        inherited: Sequence[tuple[int, int]],
        environment: dict[str, str],
    ) -> None:
        """`path`: of the program. Raises Unavailable."""
        self.text = shlex.join(command)
        actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
        ]
        actions += [(os.POSIX_SPAWN_DUP2, ours, theirs) for ours, theirs in inherited]
        try:
            self.pid = os.posix_spawn(
                path,
                list(command),
                environment,
                file_actions=actions,
                setsid=True,
                setsigmask=(),
                # The interpreter ignores the first two, a shell the third for its background jobs, and that is inherited.
                setsigdef=(signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT),
            )
        except OSError as error:
            raise Unavailable(f"cannot run {path}: {error.strerror}") from error
        self._descriptor = os.pidfd_open(self.pid)
        self._code: int | None = None

    async def ended(self) -> int:
        """Wait until the program has ended, and return its exit status."""
        if self._code is None:
            loop = asyncio.get_running_loop()
            future: asyncio.Future[None] = loop.create_future()
            loop.add_reader(self._descriptor, _finish, future)
            try:
                await future
            finally:
                loop.remove_reader(self._descriptor)
            self._code = _exit_code(self.pid)
        return self._code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and its children, if it still runs."""
        if self._code is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def reap(self) -> bool:
        """Return True if the program has ended; do not wait."""
        return self._code is not None or os.waitpid(self.pid, os.WNOHANG)[0] == self.pid

    def close(self) -> None:
        os.close(self._descriptor)


def _exit_code(pid: int) -> int:
    """Reap the child, which has ended, and return its exit status."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


@contextlib.contextmanager
def _memory_file(content: bytes = b"") -> Iterator[int]:
    descriptor = os.memfd_create("kubeletx", os.MFD_CLOEXEC)
    try:
        if content:
            os.write(descriptor, content)
            os.lseek(descriptor, 0, os.SEEK_SET)
        with _high(descriptor) as high:
            yield high
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _high(descriptor: int) -> Iterator[int]:
    """Yield a copy of the descriptor with a number above those of the descriptors that a program inherits."""
    high = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE)
    try:
        yield high
    finally:
        os.close(high)


def _content(descriptor: int) -> str:
    return os.pread(descriptor, _MAX_OUTPUT, 0).decode(errors="replace")


@contextlib.contextmanager
def hold_lock(directory: Path, volume: str) -> Iterator[int]:
    """Hold the lock file of the volume, and yield its descriptor for programs to inherit.

    Raises Unavailable, which names the process, if another one holds it.
    """
    path = directory / f"{file_stem(volume)}.lock"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Unavailable(f"volume {volume} is locked by {_holder(path)}, which has not ended") from None
        yield descriptor
    finally:
        os.close(descriptor)


def _holder(path: Path) -> str:
    """Describe the processes that have the lock file open, without this one."""
    wanted = path.stat()
    found = []
    for process in _PROC.iterdir():
        if process.name.isdigit() and int(process.name) != os.getpid() and _has_open(process, wanted):
            found.append(f"PID {process.name} ({_command(process)})")
    return ", ".join(found) or "a process that is not visible here"


def _has_open(process: Path, wanted: os.stat_result) -> bool:
    try:
        for one in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if os.path.samestat(one.stat(), wanted):
                    return True
    except OSError:  # the process has ended
        pass
    return False


def _command(process: Path) -> str:
    try:
        words = (process / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        text = b" ".join(words).decode(errors="replace") or (process / "comm").read_text().strip()
    except OSError:
        return "ended"
    return text if len(text) <= _LONGEST_COMMAND else f"{text[:_LONGEST_COMMAND]}..."
