"""`Peer`: one end of the socket between the agent and a child process.

Both ends may make and cancel calls, stream items, and send one-way messages (notes). The sender of a stream may send a
limited number of items that the receiver has not read; the receiver grants credit for more as it reads. A slow receiver
thus slows the sender, and items do not fill the memory. When the socket closes, calls that wait for an answer raise
Unavailable, and calls that are being served are cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import msgspec
import structlog

from kubeletx.api import Internal, KubeletxError, TimedOut, Unavailable
from kubeletx.api.names import PLUGIN_ERROR
from kubeletx.cri.tracing import CURRENT_SPAN, CurrentSpan

from ..plugins.failures import is_no_answer, place_of, words_of
from .codec import MSGPACK, Codec, Encoded
from .handshake import CANCEL, TRACE
from .wire import (
    LARGEST_FRAME,
    MOST_CALLS,
    WINDOW,
    Answer,
    Call,
    Cancel,
    Credit,
    Failure,
    Frame,
    Item,
    Note,
    TracedCall,
    error_of,
    failure_of,
)

log = structlog.get_logger(__name__)

Emit = Callable[[Any], Awaitable[None]]

_CREDIT_EVERY = WINDOW // 4
"""Number of items that a reader of a stream takes before it grants credit for as many; a frame for each costs both ends."""

_HEAD = re.compile(
    rb"""\s*\[\s*"(?:answer|failure|item)"\s*,\s*(?P<json>\d{1,18})\b"""
    rb"|[\x92-\x9f](?:\xa6answer|\xa7failure|\xa4item)"
    rb"(?P<msgpack>[\x00-\x7f]|\xcc.|\xcd.{2}|\xce.{4}|\xcf.{8})",
    re.DOTALL,
)
"""Begin of a frame that belongs to a call, with the call's number, in both encodings."""
_HEAD_BYTES = 64
_CHUNK = 64 * 1024
_MOST_SKIPPED = 1 << 30


class CallHandler(Protocol):
    """Handles the calls and one-way messages that arrive from the other process."""

    async def serve(self, target: str, method: str, args: Encoded, emit: Emit) -> Any:
        """Call `method` of the object named `target` and return the result.

        `args`: encoded arguments. `emit`: sends one item of a stream, or one progress report, to the other process.
        """
        ...

    def note(self, target: str, method: str, args: Encoded) -> None:
        """Handle a one-way message without waiting. The other process gets no answer, even after a failure.

        `target`, `method`, `args`: as in `serve`.
        """
        ...


class Peer:
    """One end of the connection between agent and child process.

    `name`: description of the process at the other end, for messages. `server`: handles its calls. `codec`: encoding of
    the frames. `features`: what the other process supports, see `handshake`. `largest_frame`: most bytes of a frame that
    is read. `first_call`: number of the first call.
    """

    def __init__(
        self,
        name: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        server: CallHandler,
        *,
        codec: Codec = MSGPACK,
        features: tuple[str, ...] = (CANCEL,),
        largest_frame: int = LARGEST_FRAME,
        first_call: int = 1,
    ) -> None:
        self._name = name
        self._reader = reader
        self._writer = writer
        self._server = server
        self._codec = codec
        self._features = features
        self._largest_frame = largest_frame
        self._ids = itertools.count(first_call)
        self._waiting: dict[int, asyncio.Queue[Any]] = {}
        """Received frames of each call, by its number; of a frame that is too large only the number of its bytes."""
        self._serving: dict[int, asyncio.Task[None]] = {}
        self._credits: dict[int, asyncio.Semaphore] = {}
        self._closed: str | None = None

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    @property
    def waiting_calls(self) -> int:
        """Number of this side's calls and streams that have not ended."""
        return len(self._waiting)

    async def run(self) -> None:
        """Handle messages of the other process until the socket closes; then end all running calls with errors."""
        why = "its connection closed"
        try:
            while True:
                size = int.from_bytes(await self._reader.readexactly(4), "big")
                if size > self._largest_frame:
                    await self._skip(size)
                    continue
                self._take(self._codec.read_frame(await self._reader.readexactly(size)))
        except (asyncio.IncompleteReadError, OSError):
            # the other process closed the socket; `finally` ends the calls
            pass
        except (KubeletxError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
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
        """Call a method of the object `target` in the other process; return its result or raise its error.

        `result`: type of the result. `progress`: type of the progress reports, and the function that receives them;
        None to ignore reports.
        """
        call_id, queue = await self._begin(target, method, args)
        ended = False
        try:
            while True:
                frame = await queue.get()
                ended = not isinstance(frame, Item | int)
                if isinstance(frame, Item):
                    if progress is not None:
                        progress[1](self._codec.decode(frame.value, progress[0]))
                    self._send(Credit(call_id, 1))
                    continue
                return self._codec.decode(self._answer(frame, method).value, result)
        finally:
            self._end(call_id, ended)

    async def stream(self, target: str, method: str, args: tuple[Any, ...], item: Any) -> AsyncIterator[Any]:
        """Call a streaming method of the object `target` in the other process, and yield its items.

        `item`: type of the items. Raises the error with which the stream ends.
        """
        call_id, queue = await self._begin(target, method, args)
        ended, read = False, 0
        try:
            while True:
                frame = await queue.get()
                if not isinstance(frame, Item):
                    ended = not isinstance(frame, int)
                    self._answer(frame, method)
                    return
                yield self._codec.decode(frame.value, item)
                read += 1
                if read == _CREDIT_EVERY:
                    self._send(Credit(call_id, read))
                    read = 0
        finally:
            self._end(call_id, ended)

    def note(self, target: str, method: str, args: tuple[Any, ...]) -> None:
        """Send a one-way message to the object `target`; does nothing once the connection is closed."""
        if self._closed is None:
            self._send(Note(target, method, self._codec.encode(args)))

    # --- private ---

    async def _begin(self, target: str, method: str, args: tuple[Any, ...]) -> tuple[int, asyncio.Queue[Any]]:
        if self._closed is not None:
            raise Unavailable(f"{self._name}: {self._closed}")
        call_id = next(self._ids)
        queue = self._waiting[call_id] = asyncio.Queue()
        data = self._codec.encode(args)
        span = CURRENT_SPAN.get() if TRACE in self._features else None
        if span is None:
            self._send(Call(call_id, target, method, data))
        else:
            self._send(TracedCall(call_id, target, method, data, span.traceparent))
        try:
            with contextlib.suppress(ConnectionError):  # `run` notices it and ends this call
                await self._writer.drain()
        except asyncio.CancelledError:
            # The call is sent already: without this the other side would work on, and its answer would find no caller.
            self._end(call_id, False)
            raise
        return call_id, queue

    def _end(self, call_id: int, ended: bool) -> None:
        was_waiting = self._waiting.pop(call_id, None) is not None
        if was_waiting and not ended and CANCEL in self._features and self._closed is None:
            self._send(Cancel(call_id))

    def _send(self, frame: Frame) -> None:
        data = self._codec.write_frame(frame)
        if self._closed is None and not self._writer.is_closing():
            self._writer.write(len(data).to_bytes(4, "big") + data)

    async def _skip(self, size: int) -> None:
        """Read a frame that is too large without keeping it; its call fails, and the connection stays.

        Raises Internal if the frame is not the result of a call, or is so large that the length is a mistake.
        """
        begin = b"" if size > _MOST_SKIPPED else await self._reader.readexactly(_HEAD_BYTES)
        if (head := _HEAD.match(begin)) is None:
            raise Internal(f"a frame of {size} bytes; at most {self._largest_frame} are read")
        left = size - _HEAD_BYTES
        while left:
            left -= len(await self._reader.readexactly(min(left, _CHUNK)))
        number = head["json"] or head["msgpack"]
        call_id = int(number) if head["json"] else msgspec.msgpack.decode(number, type=int)
        if (queue := self._waiting.get(call_id)) is not None:
            queue.put_nowait(size)

    def _answer(self, frame: Any, method: str) -> Answer:
        if isinstance(frame, int):
            raise Internal(
                f"{self._name}: {method} returned {frame} bytes; at most {self._largest_frame} are read: return less",
                reason=PLUGIN_ERROR,
            )
        if isinstance(frame, Failure):
            raise error_of(frame)
        assert isinstance(frame, Answer)
        return frame

    def _take(self, frame: Frame) -> None:
        match frame:
            case Call() | TracedCall():
                if len(self._serving) >= MOST_CALLS or frame.id in self._serving:
                    raise Internal(
                        f"call {frame.id} exceeds the limit of {MOST_CALLS} concurrent calls, or its number is in use"
                    )
                self._credits[frame.id] = asyncio.Semaphore(WINDOW)
                task = asyncio.create_task(self._serve(frame), name=f"{self._name}-{frame.method}")
                self._serving[frame.id] = task
                # Not in the task itself: a call that is cancelled at once never runs any of its code.
                task.add_done_callback(partial(self._forget, frame.id))
            case Note():
                self._server.note(frame.target, frame.method, Encoded(self._codec, frame.args))
            case Cancel():
                if (task_ := self._serving.get(frame.id)) is not None:
                    task_.cancel()
            case Credit():
                if (credit := self._credits.get(frame.id)) is not None:
                    if not 0 < frame.count <= WINDOW:
                        raise Internal(f"credit for {frame.count} items; {WINDOW} is the most")
                    for _ in range(frame.count):
                        credit.release()
            case Answer() | Failure() | Item():
                if (queue := self._waiting.get(frame.id)) is not None:
                    if queue.qsize() > WINDOW:
                        raise Internal(f"it sent more items than the window of {WINDOW} unread items allows")
                    queue.put_nowait(frame)

    async def _serve(self, call: Call) -> None:
        if isinstance(call, TracedCall):  # for this task and the calls that it makes
            CURRENT_SPAN.set(CurrentSpan(call=_as_it_is, traceparent=call.traceparent))

        async def emit(item: Any) -> None:
            # Before sending: a reader that stops must stop the sender, or its queue would grow without limit.
            await self._credits[call.id].acquire()
            self._send(Item(call.id, self._codec.encode(item)))
            with contextlib.suppress(ConnectionError):
                await self._writer.drain()

        answer: Answer | Failure
        try:
            result = await self._server.serve(call.target, call.method, Encoded(self._codec, call.args), emit)
            answer = Answer(call.id, self._codec.encode(result))
        except KubeletxError as error:
            answer = failure_of(call.id, error)
        except asyncio.CancelledError:
            answer = failure_of(call.id, Unavailable(f"{call.method} was cancelled"))
        except BaseException as error:  # noqa: BLE001 - SystemExit in a task would end this process
            answer = failure_of(call.id, _foreign(error, call.method))
        try:
            self._send(answer)
        except Exception as error:  # noqa: BLE001 - a value of the plugin that cannot be encoded
            self._send(
                failure_of(call.id, Internal(f"{call.method}: its answer cannot be sent: {words_of(error)}"))
            )

    def _forget(self, call_id: int, _done: asyncio.Task[None]) -> None:
        self._serving.pop(call_id, None)
        self._credits.pop(call_id, None)

    def _close(self, why: str) -> None:
        self._closed = why
        self._writer.close()
        failure = failure_of(0, Unavailable(f"{self._name}: {why}"))
        # Also calls whose answer may have been lost: for their callers the result is unknown, hence Unavailable.
        for queue in self._waiting.values():
            queue.put_nowait(failure)
        for task in self._serving.values():
            task.cancel()


async def _as_it_is(_name: str, start: Callable[[], Awaitable[Any]]) -> Any:
    """Make a call without a span of its own: only the agent sends spans."""
    return await start()


def _foreign(error: BaseException, method: str) -> KubeletxError:
    """Convert an exception to a KubeletxError, as `GuardedCalls` does for a runtime in the agent's process."""
    text = f"{method}: {words_of(error)}"
    if isinstance(error, TimeoutError):
        return TimedOut(text)
    if is_no_answer(error):
        return Unavailable(text)
    place = place_of(error)
    return Internal(f"{text} at {place}" if place else text, reason=PLUGIN_ERROR)
