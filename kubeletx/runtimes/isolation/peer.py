"""`Peer`: one end of the socket. Both ends may make and cancel calls, stream items and send one-way notes.

A stream's sender has a window of items; the reader grants credit as it reads them, so a slow reader slows the other
process instead of filling memory. When the socket closes, every waiting call raises Unavailable and every call being
served is cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog

from kubeletx.api import Internal, KubeletxError, Unavailable

from .wire import (
    LARGEST_FRAME,
    WINDOW,
    Answer,
    Call,
    Cancel,
    Credit,
    Failure,
    Frame,
    Item,
    Note,
    decode,
    encode,
    error_of,
    failure_of,
)

log = structlog.get_logger(__name__)

Emit = Callable[[Any], Awaitable[None]]


class CallHandler(Protocol):
    """Receiver of the other process's calls and notes."""

    async def serve(self, target: str, method: str, args: msgspec.Raw, emit: Emit) -> Any:
        """Call `method` of the object `target`, return its result. `emit` sends a stream's item or a progress report."""
        ...

    def note(self, target: str, method: str, args: msgspec.Raw) -> None:
        """Handle a one-way message at once; a failure is not reported to the other process."""
        ...


class Peer:
    """One end of the connection between agent and child. `name`: the process at the other end, for messages."""

    def __init__(
        self, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, server: CallHandler
    ) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer
        self._server = server
        self._decoder = msgspec.msgpack.Decoder(Frame)
        self._encoder = msgspec.msgpack.Encoder()
        self._ids = itertools.count(1)
        self._waiting: dict[int, asyncio.Queue[Any]] = {}
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._credits: dict[int, asyncio.Semaphore] = {}
        self._closed: str | None = None

    @property
    def is_closed(self) -> bool:
        """True once the other side is gone."""
        return self._closed is not None

    async def run(self) -> None:
        """Handle the other side's messages until the socket closes; then fail the calls in flight."""
        why = "its connection closed"
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                if size > LARGEST_FRAME:
                    raise Internal(f"a frame of {size} bytes")
                self._take(self._decoder.decode(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            # the other side closed the socket; `finally` fails its calls
            pass
        except (KubeletxError, msgspec.DecodeError, UnicodeDecodeError) as error:
            why = f"it broke the protocol: {error}"
        finally:
            self._close(why)

    def close(self) -> None:
        """Close the connection from this side; `run` then ends."""
        self._writer.close()

    async def call(
        self,
        target: str,
        method: str,
        args: tuple[Any, ...],
        result: Any,
        *,
        progress: tuple[Any, Callable[[Any], None]] | None = None,
    ) -> Any:
        """Call the other side and return its result. `progress`: type of the reports, and their receiver."""
        call_id, queue = await self._begin(target, method, args)
        ended = False
        try:
            while True:
                frame = await queue.get()
                ended = not isinstance(frame, Item)
                if isinstance(frame, Item):
                    if progress is not None:
                        progress[1](decode(frame.value, progress[0]))
                    self._send(Credit(call_id, 1))
                    continue
                return decode(_answer(frame).value, result)
        finally:
            self._end(call_id, ended)

    async def stream(self, target: str, method: str, args: tuple[Any, ...], item: Any) -> AsyncIterator[Any]:
        """Yield the other side's items until it ends or raises."""
        call_id, queue = await self._begin(target, method, args)
        ended = False
        try:
            while True:
                frame = await queue.get()
                if not isinstance(frame, Item):
                    ended = True
                    _answer(frame)
                    return
                yield decode(frame.value, item)
                self._send(Credit(call_id, 1))
        finally:
            self._end(call_id, ended)

    def note(self, target: str, method: str, args: tuple[Any, ...]) -> None:
        """Send a one-way message; does nothing once the other side is gone."""
        if self._closed is None:
            self._send(Note(target, method, encode(args)))

    # --- private ---

    async def _begin(self, target: str, method: str, args: tuple[Any, ...]) -> tuple[int, asyncio.Queue[Any]]:
        if self._closed is not None:
            raise Unavailable(f"{self._name}: {self._closed}")
        call_id = next(self._ids)
        queue = self._waiting[call_id] = asyncio.Queue()
        self._send(Call(call_id, target, method, encode(args)))
        try:
            with contextlib.suppress(ConnectionError):  # the reader notices and answers for it
                await self._writer.drain()
        except asyncio.CancelledError:
            self._end(call_id, False)
            raise
        return call_id, queue

    def _end(self, call_id: int, ended: bool) -> None:
        if self._waiting.pop(call_id, None) is not None and not ended and self._closed is None:
            self._send(Cancel(call_id))

    def _send(self, frame: Frame) -> None:
        data = self._encoder.encode(frame)
        if self._closed is None and not self._writer.is_closing():
            self._writer.write(len(data).to_bytes(4, "big") + data)

    def _take(self, frame: Frame) -> None:
        match frame:
            case Call():
                self._credits[frame.id] = asyncio.Semaphore(WINDOW)
                task = asyncio.create_task(self._serve(frame), name=f"{self._name}-{frame.method}")
                self._serving[frame.id] = task
                # Not in the task itself: a call that is cancelled at once never runs any of its code.
                task.add_done_callback(partial(self._forget, frame.id))
            case Note():
                self._server.note(frame.target, frame.method, frame.args)
            case Cancel():
                if (task_ := self._serving.get(frame.id)) is not None:
                    task_.cancel()
            case Credit():
                if (credit := self._credits.get(frame.id)) is not None:
                    for _ in range(frame.count):
                        credit.release()
            case Answer() | Failure() | Item():
                if (queue := self._waiting.get(frame.id)) is not None:
                    queue.put_nowait(frame)

    async def _serve(self, call: Call) -> None:
        async def emit(item: Any) -> None:
            await self._credits[call.id].acquire()
            self._send(Item(call.id, encode(item)))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()

        answer: Answer | Failure
        try:
            result = await self._server.serve(call.target, call.method, call.args, emit)
            answer = Answer(call.id, encode(result))
        except KubeletxError as error:
            answer = failure_of(call.id, error)
        except asyncio.CancelledError:
            answer = failure_of(call.id, Unavailable(f"{call.method} was cancelled"))
        except Exception as error:  # noqa: BLE001 - the root of a served call
            answer = failure_of(call.id, _foreign(error, call.method))
        self._send(answer)

    def _forget(self, call_id: int, _done: asyncio.Task[None]) -> None:
        self._serving.pop(call_id, None)
        self._credits.pop(call_id, None)

    def _close(self, why: str) -> None:
        self._closed = why
        self._writer.close()
        failure = failure_of(0, Unavailable(f"{self._name}: {why}"))
        for queue in self._waiting.values():
            queue.put_nowait(failure)
        for task in self._serving.values():
            task.cancel()


def _answer(frame: Any) -> Answer:
    if isinstance(frame, Failure):
        raise error_of(frame)
    assert isinstance(frame, Answer)
    return frame


def _foreign(error: Exception, method: str) -> KubeletxError:
    """Translate an error as `calls.translate` does for a runtime in the same process."""
    text = f"{method}: {type(error).__name__}: {error}"
    return Unavailable(text) if isinstance(error, OSError | EOFError) else Internal(text)
