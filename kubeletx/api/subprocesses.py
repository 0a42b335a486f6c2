"""`SubprocessSession`: a `Session` over a child process, for exec in runtimes whose units are processes of the node.

The command runs in a session (process group) of its own under ``sh``, so that a program or a working directory that does
not exist gives an exit code and a message on stderr, as in a shell, and not an exception.

Without a terminal there is one pipe for each stream. With a terminal all three streams are one pseudo-terminal, which is
the controlling terminal of the command; all output is then on STDOUT. Source: pty(7), credentials(7).

Output that is not read is bounded: at `MOST_WAITING_BYTES` reading from the process pauses, so the process blocks.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Final, cast

from .errors import TimedOut
from .observed import ExecResult
from .streams import Channel, Session, StreamRequest

MOST_WAITING_BYTES: Final = 256 * 1024
MOST_RESULT_BYTES: Final = 16 * 1024 * 1024

# The leader of a session that has no terminal gets the first terminal that it opens as its controlling terminal.
PLAIN: Final = 'cd -- "$0" && exec "$@"'
ON_TERMINAL: Final = 'exec <>"$0" >&0 2>&0; cd -- "$1" && shift && exec "$@"'


class SubprocessSession:
    """Streams of one command that runs as a child process. Implements `Session`.

    Make one with `start`. `close` kills the process group of the command, if it still runs.
    """

    def __init__(self) -> None:
        """Create a session without a process; `start` is for users."""
        self._output = _Output()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._terminal: int | None = None
        self._pid = 0

    @classmethod
    async def start(
        cls,
        request: StreamRequest,
        *,
        environment: Mapping[str, str],
        directory: str = "/",
    ) -> SubprocessSession:
        """Start `request.command` and return the session of its streams.

        `environment`: all variables of the command; nothing is inherited from this process. `directory`: working
        directory. The exit code is 127 if the program does not exist. Raises OSError if no process can be created.
        """
        session = cls()
        try:
            if request.tty:
                await session._start_on_terminal(request, environment, directory)
            else:
                await session._start_on_pipes(request, environment, directory)
        except BaseException:
            await session.close()
            raise
        return session

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield output as pairs of STDOUT or STDERR and bytes, until the command and its children have closed both."""
        while (chunk := await self._output.take()) is not None:
            yield chunk

    async def write(self, data: bytes) -> None:
        """Send bytes to stdin; waits while the command does not read. Ignored after `close_stdin` or `close`."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)
            await self._output.writable.wait()

    async def close_stdin(self) -> None:
        """Close stdin, so that the command reads end of file; on a terminal send the character for it (Ctrl-D)."""
        if self._stdin is None or self._stdin.is_closing():
            return
        if self._terminal is not None:
            self._stdin.write(b"\x04")
        else:
            self._stdin.close()

    async def resize(self, width: int, height: int) -> None:
        """Set the terminal's size in character cells; ignored without a terminal, and for sizes that it cannot have."""
        import termios

        if self._terminal is not None and 0 < width < 65536 and 0 < height < 65536:
            termios.tcsetwinsize(self._terminal, (height, width))

    async def wait(self) -> int:
        """Return the exit code once the command has exited; 128 plus the signal's number if a signal ended it."""
        await self._output.exited.wait()
        code = self._transport.get_returncode() if self._transport is not None else None
        return 137 if code is None else code if code >= 0 else 128 - code

    async def close(self) -> None:
        """Kill the process group of the command if it still runs, and close all streams. May be called again."""
        output = self._output
        if self._pid and not (output.exited.is_set() and not output.open):
            with suppress(ProcessLookupError):
                os.killpg(self._pid, signal.SIGKILL)
        try:
            if self._pid:
                await output.exited.wait()  # the kill above ends it
        finally:
            if self._transport is not None:
                self._transport.close()
            stdin = self._stdin
            if stdin is not None and (not stdin.is_closing() or stdin.get_write_buffer_size()):
                stdin.abort()
            output.close()
            terminal, self._terminal = self._terminal, None
            if terminal is not None:
                os.close(terminal)

    async def _start_on_pipes(
        self, request: StreamRequest, environment: Mapping[str, str], directory: str
    ) -> None:
        wanted = {
            Channel.STDIN: request.stdin,
            Channel.STDOUT: request.stdout,
            Channel.STDERR: request.stderr,
        }
        files = [
            asyncio.subprocess.PIPE if is_wanted else asyncio.subprocess.DEVNULL
            for is_wanted in wanted.values()
        ]
        self._output.open = {channel for channel in (Channel.STDOUT, Channel.STDERR) if wanted[channel]}
        await self._spawn(("sh", "-c", PLAIN, directory, *request.command), environment, files)
        if self._transport is not None and request.stdin:
            self._stdin = cast(asyncio.WriteTransport, self._transport.get_pipe_transport(0))

    async def _start_on_terminal(
        self, request: StreamRequest, environment: Mapping[str, str], directory: str
    ) -> None:
        loop = asyncio.get_running_loop()
        self._output.open = {Channel.STDOUT}
        self._terminal, child_end = os.openpty()
        try:
            command = ("sh", "-c", ON_TERMINAL, os.ttyname(child_end), directory, *request.command)
            reader = os.fdopen(os.dup(self._terminal), "rb", buffering=0)
            transport, _ = await loop.connect_read_pipe(lambda: _TerminalOutput(self._output), reader)
            self._output.sources.append(transport)
            if request.stdin:
                writer = os.fdopen(os.dup(self._terminal), "wb", buffering=0)
                self._stdin, _ = await loop.connect_write_pipe(lambda: _TerminalInput(self._output), writer)
            with_term = {"TERM": "xterm", **environment}
            await self._spawn(command, with_term, [child_end] * 3)
        finally:
            os.close(child_end)

    async def _spawn(
        self, command: Sequence[str], environment: Mapping[str, str], files: Sequence[int]
    ) -> None:
        self._transport, _ = await asyncio.get_running_loop().subprocess_exec(
            lambda: self._output,
            *command,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            env=dict(environment),
            start_new_session=True,
        )
        self._pid = self._transport.get_pid()
        for number in (1, 2):
            if (pipe := self._transport.get_pipe_transport(number)) is not None:
                self._output.sources.append(cast(asyncio.ReadTransport, pipe))


class _Output(asyncio.SubprocessProtocol):
    """Output that waits to be read, and what is known about the process. Called by asyncio."""

    def __init__(self) -> None:
        self.open: set[Channel] = set()
        self.sources: list[asyncio.ReadTransport] = []
        self.exited = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self._chunks: deque[tuple[Channel, bytes]] = deque()
        self._waiting_bytes = 0
        self._changed = asyncio.Event()

    async def take(self) -> tuple[Channel, bytes] | None:
        """Return the next output; None after the end of all output."""
        while not self._chunks:
            if not self.open:
                return None
            self._changed.clear()
            await self._changed.wait()
        chunk = self._chunks.popleft()
        self._waiting_bytes -= len(chunk[1])
        if self._waiting_bytes < MOST_WAITING_BYTES:
            for source in self.sources:
                if not source.is_closing():
                    source.resume_reading()
        return chunk

    def put(self, channel: Channel, data: bytes) -> None:
        """Append output; pauses all sources when too much waits."""
        self._chunks.append((channel, data))
        self._waiting_bytes += len(data)
        self._changed.set()
        if self._waiting_bytes >= MOST_WAITING_BYTES:
            for source in self.sources:
                if not source.is_closing():
                    source.pause_reading()

    def end(self, channel: Channel) -> None:
        """Mark one channel as ended."""
        self.open.discard(channel)
        self._changed.set()

    def close(self) -> None:
        """Drop the sources, and end all output."""
        for source in self.sources:
            source.close()
        self.open.clear()
        self.exited.set()
        self.writable.set()
        self._changed.set()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self.put(Channel(fd), data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == Channel.STDIN:
            self.writable.set()
        else:
            self.end(Channel(fd))

    def process_exited(self) -> None:
        self.exited.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


class _TerminalOutput(asyncio.Protocol):
    """Passes on what the terminal shows; its end is EIO, when the last process has closed the terminal."""

    def __init__(self, output: _Output) -> None:
        self._output = output

    def data_received(self, data: bytes) -> None:
        self._output.put(Channel.STDOUT, data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._output.end(Channel.STDOUT)


class _TerminalInput(asyncio.BaseProtocol):
    """Flow control of what is typed into the terminal."""

    def __init__(self, output: _Output) -> None:
        self._output = output

    def pause_writing(self) -> None:
        self._output.writable.clear()

    def resume_writing(self) -> None:
        self._output.writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._output.writable.set()


async def run_session(session: Session, timeout_seconds: float = 0) -> ExecResult:
    """Read a session to its end, close it, and return output and exit code, as `SupportsExec.exec_sync` requires.

    Keeps the first 16 MiB of each stream. Raises TimedOut after `timeout_seconds`, after the close; 0: no limit.
    """
    output = {Channel.STDOUT: bytearray(), Channel.STDERR: bytearray()}
    try:
        async with asyncio.timeout(timeout_seconds or None):
            async for channel, data in session.output():
                kept = output[channel]
                kept += data[: MOST_RESULT_BYTES - len(kept)]
            code = await session.wait()
    except TimeoutError:
        raise TimedOut(f"the command did not exit within {timeout_seconds:g} s") from None
    finally:
        await session.close()
    return ExecResult(
        stdout=bytes(output[Channel.STDOUT]), stderr=bytes(output[Channel.STDERR]), exit_code=code
    )
