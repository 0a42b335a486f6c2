"""`FakeSession`: a `kubeletx.api.Session` in memory. The test, or a simulated process, acts as the far end.

The far end reads input with `read_stdin`, sends output with `send`, and ends with `finish`. With `echo` there is no far
end: the session sends back all input until the half-close, like ``cat`` or a port-forward to an echo server.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from kubeletx.api import Channel


class FakeSession:
    """Implements `kubeletx.api.Session` in memory.

    The methods `read_stdin`, `send` and `finish` are for the far end, such as a simulated process.
    """

    def __init__(self, *, echo: bool = False) -> None:
        """`echo`: send all input back, and exit with 0 at the half-close."""
        self._echo = echo
        self._output: asyncio.Queue[tuple[Channel, bytes] | None] = asyncio.Queue()
        self._stdin: asyncio.Queue[bytes] = asyncio.Queue()
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.sizes: list[tuple[int, int]] = []
        self.stdin_closed = False
        self.closed = False
        self.task: asyncio.Task[None] | None = None

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield the output that the far end sends, until the far end finishes or the session is closed."""
        while (item := await self._output.get()) is not None:
            yield item
        self._output.put_nowait(None)

    async def write(self, data: bytes) -> None:
        """Send input to the far end; with `echo` it comes back as output."""
        if self._echo:
            self.send(Channel.STDOUT, data)
        else:
            self._stdin.put_nowait(data)

    async def close_stdin(self) -> None:
        """End the input (half-close): the far end then reads empty bytes. Idempotent."""
        if self.stdin_closed:
            return
        self.stdin_closed = True
        self._stdin.put_nowait(b"")
        if self._echo:
            self.finish(0)

    async def resize(self, width: int, height: int) -> None:
        """Add (width, height) to `sizes`."""
        self.sizes.append((width, height))

    async def wait(self) -> int:
        """Wait until the far end finishes, and return its exit code; 137 if the session was closed before."""
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        """Close the session: cancel the far end's `task`, and set the exit code 137 unless the far end has finished."""
        self.closed = True
        if self.task is not None:
            self.task.cancel()
        self._stdin.put_nowait(b"")
        self.finish(137)

    # --- the far end ---

    async def read_stdin(self) -> bytes:
        """Wait for and return the next bytes that were written to the session; empty at the half-close."""
        return await self._stdin.get()

    def send(self, channel: Channel, data: bytes) -> None:
        """Send output to the session on `channel` (STDOUT or STDERR); ignored after `finish`."""
        if not self._exit.done():
            self._output.put_nowait((channel, data))

    def finish(self, exit_code: int) -> None:
        """End the output and set the exit code; only the first call has an effect."""
        if not self._exit.done():
            self._exit.set_result(exit_code)
            self._output.put_nowait(None)
