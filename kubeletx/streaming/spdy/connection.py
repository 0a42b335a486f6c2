"""`SpdyConnection`: a SPDY/3.1 connection over asyncio streams, as client or as server, and its streams (`SpdyStream`).

The owner of a connection runs `SpdyConnection.run` in a task, which reads all frames. Streams are read with `read`
(empty after the other side's half-close), written with `write`, and half-closed with `close_write`.

Limits: if the streams of a connection together have more than `MAX_UNREAD_BYTES` of unread data, `run` stops reading
from the network until a stream is read. `write` waits while the network is slow. Answers (to PING, and to opened
streams) are sent without waiting, but `run` stops reading while the other side does not read `MAX_ANSWER_BYTES` of
them. At most `MAX_STREAMS` streams are open at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kubeletx.api import Unavailable

from ..idle import wait_sent
from .codec import Decoder, Encoder, SpdyError
from .frames import (
    Data,
    Frame,
    GoAway,
    HeaderList,
    Headers,
    Ping,
    ResetStatus,
    RstStream,
    SynReply,
    SynStream,
)

MAX_UNREAD_BYTES = 1 << 20
MAX_ANSWER_BYTES = 1 << 16
MAX_STREAMS = 2000
CHUNK_COST_BYTES = 64
"""Added to the length of each unread chunk for `MAX_UNREAD_BYTES`, which so limits the number of small chunks too."""
READ_BYTES = 1 << 16
CHUNK_BYTES = 1 << 15
"""Maximum length of a sent data frame, so that one stream does not block the others of its connection."""


class ByteReader(Protocol):
    """Part of `asyncio.StreamReader` that a `SpdyConnection` uses to receive bytes."""

    async def read(self, n: int = -1, /) -> bytes:
        """Return some bytes, at most `n` if it is not negative; empty at the end of the connection."""
        ...


class ByteWriter(Protocol):
    """Part of `asyncio.StreamWriter` that a `SpdyConnection` uses to send bytes."""

    def write(self, data: bytes, /) -> None:
        """Queue data to send, without waiting."""
        ...

    async def drain(self) -> None:
        """Wait while too many queued bytes are unsent. Raises OSError if the connection is lost."""
        ...

    def is_closing(self) -> bool:
        """Return True if no more data can be sent."""
        ...

    def close(self) -> None:
        """Refuse further data, and close the connection once all queued bytes are sent. Does not wait."""
        ...

    async def wait_closed(self) -> None:
        """Wait until the connection is closed."""
        ...


class SpdyStream:
    """One stream of a SPDY connection. At most one task reads it and one writes it at a time."""

    def __init__(self, connection: SpdyConnection, stream_id: int, headers: HeaderList) -> None:
        """Only `SpdyConnection` creates streams. `headers`: the headers of the frame that opened the stream."""
        self.id = stream_id
        self.headers = headers
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._write_closed = False
        self.reset_status: int | None = None

    def header(self, name: str) -> str:
        """Return the value of a header by its lower-case name; empty if the stream has no such header."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    async def read(self) -> bytes:
        """Return the next bytes; empty after the other side has half-closed or reset the stream, or disconnected."""
        while not self._chunks:
            if self._ended:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = self._chunks.popleft()
        self._connection._consumed(data)
        return data

    async def read_all(self, limit_bytes: int = 1 << 20) -> bytes:
        """Return all bytes until the other side's half-close, or until at least `limit_bytes` were read."""
        parts: list[bytes] = []
        while data := await self.read():
            parts.append(data)
            limit_bytes -= len(data)
            if limit_bytes <= 0:
                break
        return b"".join(parts)

    async def write(self, data: bytes) -> None:
        """Send bytes; waits while the network is slow.

        Raises Unavailable after `close_write`, after a reset of the stream, or if the connection is lost.
        """
        for start in range(0, len(data), CHUNK_BYTES):
            if self._write_closed:
                raise Unavailable(f"stream {self.id} is closed for writing")
            await self._connection.send(Data(stream_id=self.id, data=data[start : start + CHUNK_BYTES]))

    async def close_write(self) -> None:
        """Half-close the stream: tell the other side that no more data follow. The other side may still send."""
        if not self._write_closed:
            self._write_closed = True
            await self._connection.send(Data(stream_id=self.id, fin=True))
            self._connection._forget_if_done(self)

    def discard(self) -> None:
        """Drop all received data, and data received later. Call it if the stream is not read to its end.

        Without it, the unread data would count against `MAX_UNREAD_BYTES`, and stop all streams of the connection.
        """
        self._end()
        while self._chunks:
            self._connection._consumed(self._chunks.popleft())
        self._connection._forget_if_done(self)

    def refuse(self) -> None:
        """Reset a stream that the other side has just opened, with status REFUSED_STREAM. Does not wait."""
        self._write_closed = True
        self.discard()
        self._connection._answer(RstStream(stream_id=self.id, status=ResetStatus.REFUSED_STREAM))

    async def reset(self, status: ResetStatus = ResetStatus.CANCEL) -> None:
        """End the stream in both directions immediately, and drop received data.

        `status`: reason that is sent to the other side.
        """
        self._write_closed = True
        self.discard()
        await self._connection.send(RstStream(stream_id=self.id, status=status))

    def _feed(self, data: bytes) -> bool:
        if self._ended:
            return False
        self._chunks.append(data)
        self._changed.set()
        return True

    def _end(self) -> None:
        self._ended = True
        self._changed.set()


class SpdyConnection:
    """SPDY/3.1 connection after the HTTP upgrade, as client or server.

    `run` must be running in a task while the connection is used.
    """

    def __init__(
        self,
        reader: ByteReader,
        writer: ByteWriter,
        *,
        server: bool = False,
        on_stream: Callable[[SpdyStream], None] | None = None,
    ) -> None:
        """`on_stream`: called with each stream that the other side opens; None: such streams are refused.

        `server`: True if this side is the HTTP server of the upgrade.
        """
        self._reader, self._writer = reader, writer
        self._encoder, self._decoder = Encoder(), Decoder()
        self._on_stream = on_stream
        self._streams: dict[int, SpdyStream] = {}
        self._next_id = 2 if server else 1
        self._last_peer_id = 0
        self._ping_parity = self._next_id % 2
        self._unread = 0
        self._answered = 0
        self._room = asyncio.Event()
        self._room.set()
        self.going_away = False

    async def run(self) -> None:
        """Receive frames until the other side disconnects, and then end all streams.

        Raises SpdyError if the other side violates the protocol.
        """
        try:
            while data := await self._reader.read(READ_BYTES):
                for frame in self._decoder.feed(data):
                    self._receive(frame)
                await self._room.wait()
                if self._answered > MAX_ANSWER_BYTES:
                    await self._writer.drain()
                    self._answered = 0
        except SpdyError:
            self._answer(GoAway(last_stream_id=self._last_peer_id, status=1))
            raise
        except OSError:  # not only ConnectionError: TLS reports a lost connection with other classes too
            pass
        finally:
            for stream in self._streams.values():
                stream._write_closed = True
                stream._end()
            self._streams.clear()

    async def open_stream(self, headers: HeaderList, *, fin: bool = False) -> SpdyStream:
        """Open a stream and return it, without waiting for the other side's acceptance.

        Data may be sent at once. `fin`: True if this side will send no data on the stream. Raises Unavailable if
        the other side is closing the connection, or has closed it.
        """
        if self.going_away:
            raise Unavailable(
                f"stream {self._next_id}: the other side is closing the connection; connect again"
            )
        stream = SpdyStream(self, self._next_id, headers)
        stream._write_closed = fin
        self._next_id += 2
        self._streams[stream.id] = stream
        await self.send(SynStream(stream_id=stream.id, headers=headers, fin=fin))
        return stream

    def accept(self, stream: SpdyStream, headers: HeaderList = ()) -> None:
        """Send SYN_REPLY for a stream that the other side has opened. Call it before sending data on the stream.

        It is sent immediately, since clients wait for it before they open their next stream.
        """
        self._answer(SynReply(stream_id=stream.id, headers=headers))

    async def ping(self, ping_id: int) -> None:
        """Send a PING without waiting for its answer, so that proxies do not close an idle connection.

        `ping_id` is converted to an odd id for a client and an even id for a server.
        """
        await self.send(Ping(ping_id=ping_id * 2 + self._ping_parity))

    async def send(self, frame: Frame) -> None:
        """Send one frame; waits while the network is slow. Raises Unavailable if the connection was closed or lost."""
        if self._writer.is_closing():
            raise Unavailable("the SPDY connection is closed; connect again")
        self._writer.write(self._encoder.encode(frame))
        try:
            await self._writer.drain()
        except OSError as error:
            raise Unavailable(f"the SPDY connection was lost: {error}; connect again") from error

    async def flush(self) -> None:
        """Wait until all written data have been sent to the other side. No time limit.

        Does nothing for a writer that is not an `asyncio.StreamWriter`, such as a `Tunnel`.
        """
        if isinstance(self._writer, asyncio.StreamWriter):
            await wait_sent(self._writer.transport)

    async def close(self) -> None:
        """Send GOAWAY, close the connection, and wait at most 5 seconds until it is closed."""
        self._answer(GoAway(last_stream_id=self._last_peer_id))
        self._writer.close()
        try:
            async with asyncio.timeout(5):
                await self._writer.wait_closed()
        except OSError:  # reset by the peer, or the timeout (a TimeoutError is an OSError)
            pass

    def abort(self) -> None:
        """Close the connection without sending GOAWAY, and without waiting."""
        self._writer.close()

    def _receive(self, frame: Frame) -> None:
        match frame:
            case Data():
                self._receive_data(frame)
            case SynStream():
                self._receive_stream(frame)
            case SynReply() | Headers():
                if frame.fin:
                    self._end(frame.stream_id)
            case RstStream():
                stream = self._streams.pop(frame.stream_id, None)
                if stream is not None:
                    stream.reset_status = frame.status
                    stream._write_closed = True
                    stream._end()
            case Ping():
                if frame.ping_id % 2 != self._ping_parity:
                    self._answer(frame)
            case GoAway():
                self.going_away = True

    def _receive_data(self, frame: Data) -> None:
        stream = self._streams.get(frame.stream_id)
        if stream is None:
            return
        if frame.data and stream._feed(frame.data):
            self._unread += len(frame.data) + CHUNK_COST_BYTES
            if self._unread > MAX_UNREAD_BYTES:
                self._room.clear()
        if frame.fin:
            self._end(frame.stream_id)

    def _receive_stream(self, frame: SynStream) -> None:
        right_parity = frame.stream_id % 2 != self._next_id % 2
        is_new = frame.stream_id > self._last_peer_id and len(self._streams) < MAX_STREAMS
        if self._on_stream is None or not right_parity or not is_new:
            status = ResetStatus.REFUSED_STREAM if right_parity else ResetStatus.PROTOCOL_ERROR
            self._answer(RstStream(stream_id=frame.stream_id, status=status))
            return
        self._last_peer_id = frame.stream_id
        stream = SpdyStream(self, frame.stream_id, frame.headers)
        stream._write_closed = frame.unidirectional
        self._streams[stream.id] = stream
        if frame.fin:
            stream._end()
        self._on_stream(stream)

    def _answer(self, frame: Frame) -> None:
        """Send a frame without waiting. Its length counts against `MAX_ANSWER_BYTES`."""
        if not self._writer.is_closing():
            data = self._encoder.encode(frame)
            self._answered += len(data)
            self._writer.write(data)

    def _end(self, stream_id: int) -> None:
        stream = self._streams.get(stream_id)
        if stream is not None:
            stream._end()
            self._forget_if_done(stream)

    def _forget_if_done(self, stream: SpdyStream) -> None:
        if stream._ended and stream._write_closed:
            self._streams.pop(stream.id, None)

    def _consumed(self, data: bytes) -> None:
        self._unread -= len(data) + CHUNK_COST_BYTES
        if self._unread <= MAX_UNREAD_BYTES // 2:
            self._room.set()
