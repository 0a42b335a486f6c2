"""Runs short programs, such as mount(8), drivers and credential helpers, each with a deadline and bounded output.

    started ─► exited ─► output read ─► result
       └─ deadline, too much output, cancellation ─► a signal for each step of `Ending` ─► result, TimedOut, ProgramHangs

A program is a list of arguments, never a line for a shell. It gets a process group of its own, which gets the signals,
so that its children end too; the directory ``/``; and standard input from memory, so that a program that does not read
blocks nothing. In another mount namespace a program runs with ``nsenter`` before its own arguments.

`run_program` is for coroutines, `run_blocking` for threads; both follow `_life`.
"""

from __future__ import annotations

import fcntl
import os
import select
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

import msgspec

from kubeletx.api.errors import TimedOut, Unavailable

MOST_OUTPUT_BYTES: Final = 1 << 20
DRAIN_SECONDS: Final = 0.3
STDIN_FILE: Final = "/proc/self/fd/0"
"""Path at which a program finds its `stdin` as a file, for secrets: other processes see the arguments of a program."""
_LONGEST_TEXT: Final = 500
_USAGE: Final = " Usage: "
"""Begins the description of options that programs such as mkfs.xfs print after an error."""
_READ_BYTES: Final = 64 * 1024
_SBIN: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_Value = TypeVar("_Value")
_Wait: TypeAlias = tuple[Callable[[], bool], float | None]
"""A condition, and the seconds for which it is awaited."""


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """Rules for the end of a program.

    `steps`: signals for the process group, each with the seconds until the next one. `leaves_daemon`: processes of the
    program that outlive it, such as the daemon of a FUSE file system, are no error and are not killed; what they print
    is read for `DRAIN_SECONDS`. `survives_cancellation`: if the caller is cancelled, or this process ends, the program
    runs on. Its output goes to files in memory, since a write to a pipe without a reader would kill it; and it is not
    stopped if it prints too much, but the rest is lost. `ends_group`: processes that it leaves are killed when it exits.
    `most_bytes`: limit of its output.
    """

    steps: tuple[tuple[signal.Signals, float], ...] = ((signal.SIGKILL, 1.0),)
    leaves_daemon: bool = False
    survives_cancellation: bool = False
    ends_group: bool = False
    most_bytes: int = MOST_OUTPUT_BYTES


KILL: Final = Ending()


class ProgramHangs(TimedOut):
    """The program has not ended after its last signal: it hangs in the kernel, and may still do its work.

    `pid`: its process ID. Locks that it has inherited stay held.
    """

    def __init__(self, message: str, pid: int) -> None:
        super().__init__(message)
        self.pid = pid


class ProgramResult(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a program that has ended. `name`: for messages.

    `exit_code`: negative number of the signal that ended it. `is_cut`: it printed too much, and was stopped.
    """

    name: str
    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""
    is_cut: bool = False

    @property
    def out(self) -> str:
        """Return the output as text, with replacement characters for what is not UTF-8."""
        return self.stdout.decode(errors="replace")

    @property
    def text(self) -> str:
        """Return the errors, or else the output, as one shortened line, without a description of its options."""
        words = (self.stderr.strip() or self.stdout).decode(errors="replace").split()
        return " ".join(words).partition(_USAGE)[0][:_LONGEST_TEXT]

    def problem(self, what: str, reason: str | None = None) -> Unavailable:
        """Return the error of a failed program. `what`: begins the message, such as the name of a volume.

        `reason`: as in `KubeletxError`.
        """
        text = "it printed too much" if self.is_cut else self.text or "no output"
        return Unavailable(
            f"{what}: {self.name} failed with exit status {self.exit_code}: {text}", reason=reason
        )


def tool_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return variables for programs of the node such as mkfs: English messages, and the directories of root's tools."""
    path = ":".join((environment.get("PATH", ""), _SBIN)).lstrip(":")
    return {"PATH": path, "LC_ALL": "C", "HOME": "/"}


async def run_program(
    argv: Sequence[str],
    *,
    seconds: float | None,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
    ending: Ending = KILL,
    name: str = "",
    started: Callable[[int], object] | None = None,
) -> ProgramResult:
    """Run the program and return its result, whatever its exit code is.

    `seconds`: its deadline; None: none. `environment`: all its variables; None: those of this process. `inherited`:
    descriptors that it gets with the same numbers, such as a lock that is held until the last of its processes has
    ended. `name`: for messages; empty: ``argv[0]``, since arguments may be secret; `shell_text` shows them. `started`: called
    with the process ID. Raises OSError if it cannot be started, TimedOut if it was stopped at the deadline, and
    ProgramHangs. If the caller is cancelled, the program is stopped first.
    """
    import asyncio  # programs of threads do not pay for it

    child = _Child(argv, stdin, environment, inherited, name, ending)
    try:
        if started is not None:
            started(child.pid)
        return await _drive(child, _life(child, seconds, ending))
    except asyncio.CancelledError:
        if not ending.survives_cancellation:
            await _drive(child, _stop(child, ending))
        raise
    finally:
        child.close(kills=not ending.survives_cancellation)


def run_blocking(
    argv: Sequence[str],
    *,
    seconds: float | None,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    inherited: Sequence[int] = (),
    ending: Ending = KILL,
    name: str = "",
) -> ProgramResult:
    """Run the program as `run_program` does, in a thread that may block."""
    child = _Child(argv, stdin, environment, inherited, name, ending)
    try:
        return _drive_blocking(child, _life(child, seconds, ending))
    finally:
        child.close(kills=True)


def shell_text(argv: Sequence[str]) -> str:
    """Return a command line for messages."""
    return shlex.join(argv)


class _Child:
    """A started program. `open`: descriptors to wait for: of the process, and of its two pipes."""

    def __init__(
        self,
        argv: Sequence[str],
        stdin: bytes,
        environment: Mapping[str, str] | None,
        inherited: Sequence[int],
        name: str,
        ending: Ending,
    ) -> None:
        self.name = name or argv[0]
        self._most_bytes = ending.most_bytes
        self.is_cut = False
        self.has_exited = False
        with ExitStack() as stack:
            files: list[int] = []
            if ending.survives_cancellation:
                files = [stack.enter_context(_output_file(ending.most_bytes)) for _ in range(2)]
            process = subprocess.Popen(
                [_found(argv[0]), *argv[1:]],
                stdin=stack.enter_context(_memory_file(stdin)) if stdin else subprocess.DEVNULL,
                stdout=files[0] if files else subprocess.PIPE,
                stderr=files[1] if files else subprocess.PIPE,
                env=None if environment is None else dict(environment),
                cwd="/",
                pass_fds=inherited,
                start_new_session=True,
            )
            self._memory = stack.pop_all()
        self._process = process
        self._output_files = files
        pipes = [pipe.fileno() for pipe in (process.stdout, process.stderr) if pipe is not None]
        self._output = {pipe: bytearray() for pipe in pipes}
        self._pipes = set(pipes)
        self._pidfd = -1
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except OSError:  # such as too many open files; to the caller it means that nothing was started
            self.close(kills=True)
            raise
        for pipe in self._pipes:
            os.set_blocking(pipe, False)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def open(self) -> set[int]:
        return self._pipes if self.has_exited else {self._pidfd, *self._pipes}

    def is_over(self) -> bool:
        """Return True if it has exited and no process keeps its output open."""
        return self.has_exited and not self._pipes

    def read(self, descriptor: int) -> bool:
        """Read from a readable descriptor; return True at its end."""
        if descriptor == self._pidfd:
            self.has_exited = True
            return True
        try:
            data = os.read(descriptor, _READ_BYTES)
        except BlockingIOError:
            return False
        room = self._most_bytes - sum(len(output) for output in self._output.values())
        self._output[descriptor] += data[:room]
        self.is_cut = self.is_cut or len(data) > room
        if not data:
            self._pipes.discard(descriptor)
        return not data

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process group. Its number is not reused before `result` or `close` reaps the process."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)

    def result(self) -> ProgramResult:
        stdout, stderr = self._output.values() or map(_content, self._output_files)
        return ProgramResult(
            name=self.name,
            exit_code=self._process.wait(),
            stdout=bytes(stdout),
            stderr=bytes(stderr),
            is_cut=self.is_cut,
        )

    def close(self, *, kills: bool) -> None:
        """Close the descriptors and reap the process, later if it still runs. `kills`: with SIGKILL before."""
        process = self._process
        if process.poll() is None:
            if kills:  # a second cancellation has ended the steps of `Ending`
                self.signal(signal.SIGKILL)
            threading.Thread(target=process.wait, name=f"reap {self.pid}", daemon=True).start()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        self._memory.close()
        if self._pidfd >= 0:
            os.close(self._pidfd)


def _life(child: _Child, seconds: float | None, ending: Ending) -> Generator[_Wait, bool, ProgramResult]:
    """Yield what to wait for, get True if it came true in time, and return the result."""
    if ending.leaves_daemon:
        is_over = yield (lambda: child.has_exited or child.is_cut), seconds
        yield (lambda: child.is_over() or child.is_cut or not child.has_exited), DRAIN_SECONDS
    else:
        is_over = yield (lambda: child.is_over() or child.is_cut), seconds
    if is_over and not child.is_cut:
        if ending.ends_group:
            child.signal(signal.SIGKILL)
        return child.result()
    number = yield from _stop(child, ending)
    limit = "printed too much" if child.is_cut else f"did not end within {seconds:g} s"
    if not child.has_exited:
        problem = f"{child.name} {limit}, and its process {child.pid} does not end after {number.name}"
        raise ProgramHangs(f"{problem}: it hangs in the kernel", child.pid)
    if child.is_cut:
        return child.result()
    raise TimedOut(f"{child.name} {limit}, and was stopped with {number.name}")


def _stop(child: _Child, ending: Ending) -> Generator[_Wait, bool, signal.Signals]:
    """Send the signals until the program is over; return the last one."""
    number = signal.SIGKILL
    for number, seconds in ending.steps:
        child.signal(number)
        if (yield child.is_over, seconds):
            break
    return number


async def _drive(child: _Child, life: Generator[_Wait, bool, _Value]) -> _Value:
    import asyncio

    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    def ready(descriptor: int) -> None:
        if child.read(descriptor):
            loop.remove_reader(descriptor)
        changed.set()

    async def until(condition: Callable[[], bool]) -> None:
        while not condition():
            changed.clear()
            await changed.wait()

    readers = set(child.open)
    for descriptor in readers:
        loop.add_reader(descriptor, ready, descriptor)
    try:
        condition, seconds = next(life)
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await until(condition)
            condition, seconds = life.send(condition())
    except StopIteration as end:
        value: _Value = end.value
        return value
    finally:
        for descriptor in readers:
            loop.remove_reader(descriptor)


def _drive_blocking(child: _Child, life: Generator[_Wait, bool, _Value]) -> _Value:
    poller = select.poll()
    for descriptor in child.open:
        poller.register(descriptor)  # POLLIN, and POLLHUP when all writers have closed a pipe
    try:
        condition, seconds = next(life)
        while True:
            until = float("inf") if seconds is None else time.monotonic() + seconds
            while not condition() and (left := until - time.monotonic()) > 0:
                for descriptor, _ in poller.poll(None if seconds is None else left * 1000):
                    if child.read(descriptor):
                        poller.unregister(descriptor)
            condition, seconds = life.send(condition())
    except StopIteration as end:
        value: _Value = end.value
        return value


def _found(program: str) -> str:
    """Make a relative path absolute, since the child looks for it in ``/``; a name is searched for in PATH."""
    return str(Path(program).absolute()) if "/" in program else program


@contextmanager
def _memory_file(content: bytes) -> Iterator[int]:
    descriptor = os.memfd_create("kubeletx", os.MFD_CLOEXEC)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _output_file(size: int) -> Iterator[int]:
    """Yield a file in memory that cannot grow beyond `size`: a later write fails with EPERM."""
    descriptor = os.memfd_create("kubeletx", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
        yield descriptor
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    """Return what was written to an output file. The program shares its position, and may still write."""
    return os.pread(descriptor, os.lseek(descriptor, 0, os.SEEK_CUR), 0)
