"""Session of a command in a guest, as `exec` returns it to the host.

The command is run by a coroutine, called the work. It reads the input, sends output and ends with an exit
code (`GuestSession.end`). What it does after that, such as clean-up, does not delay the caller. Both
directions have back-pressure. The work is cancelled if the session is closed before its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import structlog

from kubeletx.api import Channel, KubeletxError, StreamRequest

log = structlog.get_logger(__name__)

FAILED = 126
"""Exit code if the work failed and the command has no exit code of its own."""
_ABANDONED_EXIT_CODE = 137
_CHUNK = 64 * 1024
_WAITING_CHUNKS = 16


class GuestSession:
    """Session of a coroutine that works in a guest, such as one command. Implements `kubeletx.api.Session`."""

    def __init__(
        self, name: str, request: StreamRequest, work: Callable[[GuestSession], Awaitable[None]]
    ) -> None:
        """`work`: coroutine that is started at once, as a task called `name`."""
        self.request = request
        self._input: asyncio.Queue[bytes] = asyncio.Queue(_WAITING_CHUNKS)
        self._is_input_read = not request.stdin
        self._output: asyncio.Queue[tuple[Channel, bytes] | None] = asyncio.Queue(_WAITING_CHUNKS)
        self._exit: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(work), name=name)

    # --- for the host ---

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        while (part := await self._output.get()) is not None:
            yield part
        self._output.put_nowait(None)

    async def write(self, data: bytes) -> None:
        """Send input to the work; it is dropped if the work has ended."""
        if data and not self._exit.done():
            await self._input.put(data)

    async def close_stdin(self) -> None:
        if not self._exit.done():
            await self._input.put(b"")

    async def resize(self, width: int, height: int) -> None:
        """Do nothing: there is no terminal."""

    async def wait(self) -> int:
        """Wait for the exit code of the work; it is 128 + signal for a command that was ended by a signal."""
        return await asyncio.shield(self._exit)

    async def close(self) -> None:
        """Cancel the work unless it has ended, and wait until it has cleaned up."""
        if not self._exit.done():
            self._task.cancel()
        await asyncio.wait([self._task])

    # --- for the work ---

    async def read(self) -> bytes:
        """Return the next part of the input; empty at its end, also at later calls."""
        if self._is_input_read:
            return b""
        data = await self._input.get()
        self._is_input_read = not data
        return data

    async def send(self, channel: Channel, data: bytes) -> None:
        """Send output to the client; dropped if the client did not request this stream.

        Waits while the client has too much unread output.
        """
        wanted = self.request.stdout if channel is Channel.STDOUT else self.request.stderr
        if wanted and not self._exit.done():
            for at in range(0, len(data), _CHUNK):
                await self._output.put((channel, data[at : at + _CHUNK]))

    async def say(self, words: str) -> None:
        """Send a message of the plugin to the client's standard error, as a line that begins with ``kubeletx:``."""
        await self.send(Channel.STDERR, f"kubeletx: {words}\n".encode())

    async def end(self, exit_code: int) -> None:
        """End the session with this exit code; a second call does nothing."""
        if not self._exit.done():
            await self._output.put(None)
            self._finish(exit_code)

    async def _run(self, work: Callable[[GuestSession], Awaitable[None]]) -> None:
        try:
            await work(self)
        except KubeletxError as error:
            await self.say(error.message)
            await self.end(FAILED)
        except Exception:
            log.exception("Failed work in a guest", task=self._task.get_name())
            await self.say("internal error, see the agent's log")
            await self.end(FAILED)
        finally:
            if not self._exit.done():
                _drop(self._output)
                self._output.put_nowait(None)
                self._finish(_ABANDONED_EXIT_CODE)

    def _finish(self, exit_code: int) -> None:
        if not self._exit.done():
            self._exit.set_result(exit_code)
        _drop(self._input)  # so that a waiting `write` returns


def _drop(queue: asyncio.Queue[Any]) -> None:
    while not queue.empty():
        queue.get_nowait()
