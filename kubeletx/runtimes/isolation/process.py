"""`ChildProcess`: starts, holds and stops one child process that runs code of a plugin."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import KubeletxError, Unavailable

from ..plugins.failures import LONGEST_TEXT
from .control import CONTROL, Control
from .handshake import handshake
from .peer import CallHandler, Peer
from .remote import remote_class

log = structlog.get_logger(__name__)

PROGRAM: Final = "kubeletx.runtimes.isolation.child"
RUNTIME_CONTROL: Final = "kubeletx.runtimes.isolation.runtime_child:ChildControl"
_NAMES: Final = frozenset(
    {
        *("PATH", "HOME", "LANG", "TZ", "TMPDIR"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        "GRPC_ENABLE_FORK_SUPPORT",  # set by the agent itself at its start
    }
)
"""Environment variables that children get: a short list, since others of the agent may have secrets."""
_PREFIXES: Final = ("KUBELETX_", "LC_", "PYTHON")
"""Prefixes of further names; Python's variables let the child import what the agent imports."""
_OOM_SCORE: Final = "oom_score_adj"
_SOURCE: Final = Path(__file__).absolute().parents[3]
"""Directory with kubeletx, or the zipapp."""
_FROM_ZIPAPP: Final = f"""\
import runpy, sys
sys.path.insert(0, {str(_SOURCE)!r})
runpy.run_module({PROGRAM!r}, run_name="__main__", alter_sys=True)
"""
"""Runs `PROGRAM` from a zipapp, in which option -m does not search."""
BURST_BYTES: Final = 64 * 1024
BYTES_PER_SECOND: Final = 2 * 1024
_REPORT_SECONDS: Final = 60.0


class ChildCgroup(msgspec.Struct, frozen=True):
    """A cgroup for one child and everything that it starts.

    `join`: makes the cgroup with its limits, and moves a process there. `remove`: ends all processes in it, and removes
    it. Both block, and raise Internal or OSError.
    """

    join: Callable[[int], None]
    remove: Callable[[], None]


class ChildProcess:
    """A running child process, made by `start`.

    `peer`: the connection to it. `control`: object whose methods call the child, see `Control`. `started_at`: start
    time by the event loop's clock.
    """

    def __init__(
        self,
        owner: str,
        process: asyncio.subprocess.Process,
        peer: Peer,
        output: asyncio.ReadTransport,
        *,
        ends_group: bool,
        cgroup: ChildCgroup | None = None,
    ) -> None:
        self._owner = owner
        self._process = process
        self._output = output
        self._ends_group = ends_group
        self._cgroup = cgroup
        self._reading = asyncio.create_task(peer.run(), name=f"{owner} child")
        self.peer = peer
        self.control: Control = remote_class(Control)(lambda: peer, CONTROL)
        self.started_at = asyncio.get_running_loop().time()

    @classmethod
    async def start(
        cls,
        owner: str,
        server: CallHandler,
        program: Sequence[str] = (),
        *,
        control: str = RUNTIME_CONTROL,
        descriptors: Sequence[int] = (),
        variables: Collection[str] = (),
        ends_group: bool = False,
        cgroup: ChildCgroup | None = None,
    ) -> ChildProcess:
        """Start a child process, and do the handshake with it.

        `owner`: for messages, such as ``runtime edge``. `server`: handles the child's calls to the agent. `program`:
        command of a program whose standard input and output are the socket; empty: the child is `PROGRAM`.
        `control`, `descriptors`: its arguments, see there. `variables`: names of environment variables in addition to
        `child_environment`. `ends_group`: the processes that it started end with it; not for runtimes, whose containers
        may be such processes. `cgroup`: of the child, with its limits; None: it stays in the agent's. Raises Unavailable
        if the process cannot be started, and the errors of `handshake`.
        """
        # A pair and not a path: no other process can connect, and the kernel closes it when either side ends.
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        writer_end, output = await ChildOutput.open(owner)
        try:
            process = await _spawn(
                theirs.fileno(),
                writer_end,
                program,
                control,
                descriptors,
                child_environment(os.environ, variables),
            )
        except OSError as error:
            ours.close()
            output.close()
            what = program[0] if program else "its process"
            raise Unavailable(f"{owner}: cannot start {what}: {error.strerror}") from error
        finally:
            # The agent's copy must be closed, or the end of the child would not close the connection.
            theirs.close()
            os.close(writer_end)
        protect_agent(process.pid)
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        who = f"the process of {owner}"
        try:
            if cgroup is not None:  # before the handshake: until then no code of a plugin runs
                await _in_cgroup(owner, partial(cgroup.join, process.pid))
            agreement = await handshake(who, reader, writer)
        except BaseException:
            writer.close()
            await _kill(process, ends_group)
            output.close()
            raise
        peer = Peer(who, reader, writer, server, codec=agreement.codec, features=agreement.features)
        return cls(owner, process, peer, output, ends_group=ends_group, cgroup=cgroup)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """True while the process runs and its connection is open."""
        return self._process.returncode is None and not self.peer.is_closed

    async def stop(self, grace_seconds: float) -> int | None:
        """Close the connection, wait up to `grace_seconds` for the child's end, then kill it.

        Returns the exit code of a child that ended by itself, negative for a signal; None if it was killed. Processes of
        a runtime itself, such as containers, keep running.
        """
        # The child ends when its connection closes; a signal could end it in the middle of a call.
        self.peer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        code = self._process.returncode
        await _kill(self._process, self._ends_group)
        if self._cgroup is not None:
            await _in_cgroup(self._owner, self._cgroup.remove)
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
        self._output.close()
        return code


async def _spawn(
    descriptor: int,
    output: int,
    program: Sequence[str],
    control: str,
    more: Sequence[int],
    environment: dict[str, str],
) -> asyncio.subprocess.Process:
    passed = () if program else (descriptor, *more)
    own = ("-m", PROGRAM) if _SOURCE.is_dir() else ("-c", _FROM_ZIPAPP)
    return await asyncio.create_subprocess_exec(
        *(program or (sys.executable, *own, control, *map(str, passed))),
        pass_fds=passed,
        stdin=descriptor if program else asyncio.subprocess.DEVNULL,
        stdout=descriptor if program else output,
        stderr=output,
        # A group that `_kill` can end as a whole, and that Ctrl-C in the agent's terminal does not reach.
        start_new_session=True,
        env=environment,
    )


async def _in_cgroup(owner: str, change: Callable[[], None]) -> None:
    """Change the cgroup of a child; a failure is logged, since the plugin works without limits too."""
    try:
        await asyncio.to_thread(change)
    except (KubeletxError, OSError) as error:
        log.warning("Failed to change the cgroup of a plugin's process", owner=owner, err=str(error))


async def _kill(process: asyncio.subprocess.Process, group: bool) -> None:
    """Kill the process if it runs; with `group`, all processes of its group too, also if it has ended itself."""
    with contextlib.suppress(ProcessLookupError):  # it has ended, or the group is empty
        if group:
            # The number is not reused while a process of the group exists.
            os.killpg(process.pid, signal.SIGKILL)
        elif process.returncode is None:
            os.kill(process.pid, signal.SIGKILL)
    if process.returncode is None:
        await process.wait()


def child_environment(own: Mapping[str, str], more: Collection[str] = ()) -> dict[str, str]:
    """Return the environment of a child process. `own`: of the agent. `more`: further names that the child gets."""
    return {
        name: value
        for name, value in own.items()
        if name in _NAMES or name in more or name.startswith(_PREFIXES)
    }


def import_path() -> list[str]:
    """Return the import path for a child; without the empty entry, which stands for the agent's working directory."""
    return [path for path in sys.path if path]


def protect_agent(pid: int, proc: Path = Path("/proc")) -> None:
    """Give a new child oom_score_adj 0 if the agent has less, as with -999 of a kubelet: the kernel ends the child first."""
    with contextlib.suppress(OSError, ValueError):  # the child has ended
        if int((proc / "self" / _OOM_SCORE).read_text()) < 0:
            (proc / str(pid) / _OOM_SCORE).write_text("0\n")


class ChildUsage(msgspec.Struct, frozen=True, kw_only=True):
    """Resources of the child process of one isolated runtime.

    `memory_bytes`: resident memory. `cpu_seconds`: user and system time of the child. `restarts`: number of children
    that were started after the first one.
    """

    pid: int
    memory_bytes: int
    cpu_seconds: float
    restarts: int


def usage_of(pid: int, restarts: int, proc: Path = Path("/proc")) -> ChildUsage | None:
    """Read the usage of the process `pid`; None if it has ended. Blocks briefly."""
    try:
        stat = (proc / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):  # the second: it ended between open and read
        return None
    fields = stat.rpartition(b")")[2].split()  # the name in parentheses may contain spaces
    ticks = int(fields[11]) + int(fields[12])
    return ChildUsage(
        pid=pid,
        memory_bytes=int(fields[21]) * os.sysconf("SC_PAGE_SIZE"),
        cpu_seconds=ticks / os.sysconf("SC_CLK_TCK"),
        restarts=restarts,
    )


class ChildOutput(asyncio.Protocol):
    """Reads the pipe that is standard output and standard error of a child.

    Each line is a line of the agent's log. A child that prints more than `BURST_BYTES`, and then `BYTES_PER_SECOND`, loses
    the rest: the pipe is always read, so that the child does not wait, and the number of lost bytes is logged.
    """

    def __init__(self, owner: str, now: Callable[[], float]) -> None:
        """`owner`: such as ``runtime edge``. `now`: a monotonic clock."""
        self._owner = owner
        self._now = now
        self._left = float(BURST_BYTES)
        self._filled_at = self._reported_at = now()
        self._line = b""
        self._lost = 0

    @classmethod
    async def open(cls, owner: str) -> tuple[int, asyncio.ReadTransport]:
        """Begin to read a new pipe; return the descriptor of its writing end, and the transport that reads it."""
        reader, writer = os.pipe()
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(lambda: cls(owner, loop.time), os.fdopen(reader, "rb"))
        return writer, transport

    def data_received(self, data: bytes) -> None:
        now = self._now()
        self._left = min(BURST_BYTES, self._left + (now - self._filled_at) * BYTES_PER_SECOND)
        self._filled_at = now
        kept = data[: max(int(self._left), 0)]
        self._left -= len(kept)
        self._lost += len(data) - len(kept)
        *lines, self._line = (self._line + kept).split(b"\n")
        for line in lines:
            self._write(line)
        if len(self._line) > LONGEST_TEXT:
            self._write(self._line)
            self._line = b""
        if self._lost and now - self._reported_at >= _REPORT_SECONDS:
            self._report()

    def connection_lost(self, _error: Exception | None) -> None:
        """Log what is left: the child, and every process that has its pipe, has ended."""
        self._write(self._line)
        if self._lost:
            self._report()

    def _write(self, line: bytes) -> None:
        if line.strip():
            text = line[:LONGEST_TEXT].decode(errors="backslashreplace").rstrip()
            log.info("Output of plugin", owner=self._owner, text=text)

    def _report(self) -> None:
        log.warning("Left out output of plugin, which prints too much", owner=self._owner, bytes=self._lost)
        self._lost, self._reported_at = 0, self._now()
