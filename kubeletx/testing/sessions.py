"""`FakeSession`: a `kubeletx.api.Session` whose far end is the test or a small program.

The far end reads input with `read_stdin`, answers with `send`, and ends with `finish`. With `echo` it is the far end of
a port-forward or of ``cat``: it returns all input, until the half-close.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kubeletx.api import Channel


class FakeSession:
    """A duplex stream in memory. Implements `Session`; the extra methods are the far end."""

    def __init__(self, *, echo: bool = False) -> None:
        """`echo`: send every input back and exit with 0 at the half-close."""
        self._echo = echo
        self._output: asyncio.Queue[tuple[Channel, bytes] | None] = asyncio.Queue()
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue()
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.sizes: list[tuple[int, int]] = []
        self.stdin_closed = False
        self.closed = False
        self.task: asyncio.Task[None] | None = None

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield what the far end sent until it finished or the session was closed."""
        while (item := await self._output.get()) is not None:
            yield item
        self._output.put_nowait(None)

    async def write(self, data: bytes) -> None:
        """Send bytes to the far end."""
        if self._echo:
            self.send(Channel.STDOUT, data)
        else:
            self._stdin.put_nowait(data)

    async def close_stdin(self) -> None:
        """Half-close."""
        if self.stdin_closed:
            return
        self.stdin_closed = True
        self._stdin.put_nowait(b"")
        if self._echo:
            self.finish(0)

    async def resize(self, width: int, height: int) -> None:
        """Add the size to `sizes`."""
        self.sizes.append((width, height))

    async def wait(self) -> int:
        """The exit code given to `finish`; 137 when the session was closed before."""
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        """Abandon the session; the far end is stopped."""
        self.closed = True
        if self.task is not None:
            self.task.cancel()
        self._stdin.put_nowait(b"")
        self.finish(137)

    # --- the far end ---

    async def read_stdin(self) -> bytes:
        """The next bytes written to the session; empty at the half-close."""
        return await self._stdin.get()

    def send(self, channel: Channel, data: bytes) -> None:
        """Send output (STDOUT or STDERR)."""
        if not self._exit.done():
            self._output.put_nowait((channel, data))

    def finish(self, exit_code: int) -> None:
        """End the output and set the exit code; the first call counts."""
        if not self._exit.done():
            self._exit.set_result(exit_code)
            self._output.put_nowait(None)
