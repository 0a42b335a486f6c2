"""`Importer`: imports the plugins of one distribution in a fork of this child process, which imports none itself.

    child ─ fork ─▶ imports a, b, c, one after another ═ pipe ═▶ what each registered
                    ended or hangs in b: b is failed; the next fork imports c

A fork has the modules of kubeletx already, which take most of the time of a start, and one distribution cannot change the
modules of another.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import resource
import signal
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import structlog

from kubeletx.api import Clock
from kubeletx.api.waiting import first_of
from kubeletx.linux.libc import die_with_parent
from kubeletx.linux.processes import read_stat
from kubeletx.runtimes.isolation.handshake import framed
from kubeletx.runtimes.plugins.process_state import HIGH_DESCRIPTOR

from ..candidates import FAILED, Candidate, LoadedPlugin
from ..loading import check_settings, load_candidate
from .control import MOST_DEADLINES, Imports, ReportedPlugin
from .registered import registered

LARGEST: Final = 1024 * 1024
"""Largest size in bytes of what one plugin registers."""
_END_SECONDS: Final = 0.5
_BUSY: Final = ("R", "D")
"""States of a process that uses the CPU, or waits for it or for a disk."""


class Importer:
    """Imports plugins of one distribution, as the agent asks for it in `imports`."""

    def __init__(self, imports: Imports, clock: Clock) -> None:
        self._imports = imports
        self._clock = clock

    async def registered(self, plugins: Sequence[LoadedPlugin]) -> list[ReportedPlugin]:
        """Return what each plugin registered; a failed plugin has the reason."""
        reported: list[ReportedPlugin] = []
        while len(reported) < len(plugins):
            rest = plugins[len(reported) :]
            try:
                async with _Fork(partial(self._import, rest)) as fork:
                    for _ in rest:
                        reported.append(await self._report(fork))
                continue
            except _Ended as end:
                words = str(end)
            plugin = plugins[len(reported)]
            reported.append(
                ReportedPlugin(
                    state=FAILED,
                    reason=f"the import of {plugin.identity} {words}; repair or uninstall the plugin, or leave it out "
                    f"with --disable-plugin={plugin.name}",
                )
            )
        return reported

    async def _report(self, fork: _Fork) -> ReportedPlugin:
        """Return the next plugin's report. Raises `_Ended` if the process ends before, or does not return in time."""
        reading = asyncio.create_task(fork.read(), name="report of a plugin")
        seconds, deadlines = self._imports.seconds, 0
        try:
            while True:
                await first_of("deadline of an import", reading, self._clock.sleep(seconds))
                if reading.done():
                    return reading.result()
                deadlines += 1
                if deadlines == MOST_DEADLINES or not fork.is_busy():
                    raise _Ended(f"did not return within {deadlines * seconds:g} s")
        finally:
            reading.cancel()

    def _import(self, plugins: Sequence[LoadedPlugin], writer: int) -> None:
        # Its number is out of the reach of an import that closes all low ones, as it would close the agent's connection.
        high = fcntl.fcntl(writer, fcntl.F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR)

        resource.setrlimit(resource.RLIMIT_DATA, (self._imports.memory_bytes, self._imports.memory_bytes))

        def write(data: bytes) -> None:
            left = memoryview(framed(data))
            while left:
                left = left[os.write(high, left) :]

        for plugin in plugins:
            candidate = load_candidate(plugin)
            if self._imports.sections is not None:
                own = {
                    name: value for name, value in self._imports.sections.items() if name in candidate.names
                }
                checked = check_settings(candidate, own, self._imports.origin)
                candidate = msgspec.structs.replace(candidate, about=checked.about)
            if _is_closed(writer):
                reason = "its import closes descriptors that it has not opened; repair the plugin"
                candidate = Candidate(about=msgspec.structs.replace(plugin, state=FAILED, reason=reason))
            data = msgspec.msgpack.encode(registered(candidate))
            if len(data) > LARGEST:
                reason = f"it registers more than {LARGEST} bytes; repair the plugin"
                data = msgspec.msgpack.encode(ReportedPlugin(state=FAILED, reason=reason))
            write(data)


class _Ended(Exception):
    """The fork has ended or hangs; the message says how, as words after "the import of PLUGIN"."""


class _Fork:
    """Context of a fork that runs `work` with the descriptor of its pipe; its end kills all processes of the fork."""

    def __init__(self, work: Callable[[int], None]) -> None:
        self._work = work

    async def __aenter__(self) -> _Fork:
        reader, writer = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            _run(self._work, writer)
        os.close(writer)
        loop = asyncio.get_running_loop()
        self._frames = asyncio.StreamReader(limit=LARGEST)
        self._pipe, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._frames), os.fdopen(reader, "rb")
        )
        self._exit = loop.create_future()
        self._pidfd = os.pidfd_open(self._pid)
        loop.add_reader(self._pidfd, self._exited)
        return self

    async def __aexit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):  # no process of its session is left
            os.killpg(self._pid, signal.SIGKILL)
        if not self._exit.done():
            # It may not have a session yet. It is not reaped, so the number is its own.
            os.kill(self._pid, signal.SIGKILL)
            await self._exit
        os.close(self._pidfd)
        self._pipe.close()

    def is_busy(self) -> bool:
        """Return True if the process works now, as an import on a busy node that needs more time."""
        stat = read_stat(self._pid)
        return stat is not None and stat.state in _BUSY

    async def read(self) -> ReportedPlugin:
        """Return the next plugin's report. Raises `_Ended` if the process ends before."""
        frame = asyncio.create_task(self._frame(), name="import of a plugin")
        # A process that the plugin has forked may keep the pipe open.
        await asyncio.wait((frame, self._exit), return_when=asyncio.FIRST_COMPLETED)
        if not frame.done():
            await asyncio.wait((frame,), timeout=_END_SECONDS)  # what it wrote before its end
        frame.cancel()
        (result,) = await asyncio.gather(frame, return_exceptions=True)
        if isinstance(result, ReportedPlugin):
            return result
        await asyncio.wait((self._exit,), timeout=_END_SECONDS)
        raise _Ended(_words(self._exit.result()) if self._exit.done() else "closed the files of its process")

    async def _frame(self) -> ReportedPlugin:
        size = int.from_bytes(await self._frames.readexactly(4), "big")
        return msgspec.msgpack.decode(await self._frames.readexactly(size), type=ReportedPlugin)

    def _exited(self) -> None:
        asyncio.get_running_loop().remove_reader(self._pidfd)
        self._exit.set_result(os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1]))


def _run(work: Callable[[int], None], writer: int) -> None:
    """Run `work` in the fork, and end it without any of the exit functions that plugins or the child registered."""
    try:
        os.setsid()
        die_with_parent()
        signal.set_wakeup_fd(-1)
        structlog.reset_defaults()  # the connection to the agent belongs to the child
        work(writer)
    finally:
        os._exit(0)


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return True
    return False


def _words(code: int) -> str:
    if code >= 0:
        return f"ended its process with exit code {code}"
    try:
        return f"ended its process with {signal.Signals(-code).name}"
    except ValueError:
        return f"ended its process with signal {-code}"
