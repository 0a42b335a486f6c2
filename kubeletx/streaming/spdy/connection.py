"""A SPDY/3.1 connection over asyncio streams, as client or as server.

`run` reads until the end, in the task of the connection's owner. Streams are read with `read`
(empty at the half-close), written with `write`, half-closed with `close_write`. What was received but not read
is bounded for the whole connection: above `MAX_UNREAD_BYTES` reading from the network stops until a stream is
read. Writing waits for the network. Answers (to PING, to streams) are written without waiting; a peer that does not
read `MAX_ANSWER_BYTES` of them is not read either until it does. `MAX_STREAMS` are open at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from kubeletx.api import Unavailable

from ..unsent import wait_sent
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
"""Cost of a chunk in addition to its bytes, so that many small ones are bounded too."""
READ_BYTES = 1 << 16
CHUNK_BYTES = 1 << 15
"""Longest data frame sent, so that streams of one connection take turns."""


class ByteReader(Protocol):
    """Reader of a connection, such as `asyncio.StreamReader`."""

    async def read(self, n: int = -1, /) -> bytes:
        """Some bytes; empty at the end."""
        ...


class ByteWriter(Protocol):
    """Writer of a connection, such as `asyncio.StreamWriter`."""

    def write(self, data: bytes, /) -> None:
        """Queue data to send."""
        ...

    async def drain(self) -> None:
        """Wait while the send buffer is full. Raises OSError."""
        ...

    def is_closing(self) -> bool:
        """True if nothing more can be sent."""
        ...

    def close(self) -> None:
        """Close once everything was sent."""
        ...

    async def wait_closed(self) -> None:
        """Wait until the close is complete."""
        ...


class SpdyStream:
    """One stream. It has one reader and one writer at a time."""

    def __init__(self, connection: SpdyConnection, stream_id: int, headers: HeaderList) -> None:
        """Made by the connection. `headers`: those that opened it."""
        self.id = stream_id
        self.headers = headers
        self._connection = connection
        self._chunks: deque[bytes] = deque()
        self._changed = asyncio.Event()
        self._ended = False
        self._write_closed = False
        self.reset_status: int | None = None

    def header(self, name: str) -> str:
        """The value of a header, by its lower-case name; empty if it is missing."""
        return next((value for key, value in self.headers if key.lower() == name), "")

    async def read(self) -> bytes:
        """The next bytes; empty once the other side half-closed, reset the stream or disconnected."""
        while not self._chunks:
            if self._ended:
                return b""
            self._changed.clear()
            await self._changed.wait()
        data = self._chunks.popleft()
        self._connection._consumed(data)
        return data

    async def read_all(self, limit_bytes: int = 1 << 20) -> bytes:
        """Everything until the other side's half-close, cut at `limit_bytes`."""
        parts: list[bytes] = []
        while data := await self.read():
            parts.append(data)
            limit_bytes -= len(data)
            if limit_bytes <= 0:
                break
        return b"".join(parts)

    async def write(self, data: bytes) -> None:
        """Send bytes; ignored after `close_write` or a reset."""
        for start in range(0, len(data), CHUNK_BYTES):
            if self._write_closed:
                raise Unavailable("the stream is closed")
            await self._connection.send(Data(stream_id=self.id, data=data[start : start + CHUNK_BYTES]))

    async def close_write(self) -> None:
        """Half-close: the other side sees the end of our data."""
        if not self._write_closed:
            self._write_closed = True
            await self._connection.send(Data(stream_id=self.id, fin=True))
            self._connection._forget_if_done(self)

    def discard(self) -> None:
        """Drop received and future data after the reader stopped, so that it does not block other streams."""
        self._end()
        while self._chunks:
            self._connection._consumed(self._chunks.popleft())
        self._connection._forget_if_done(self)

    def refuse(self) -> None:
        """Reset a stream that the other side just opened, without waiting."""
        self._write_closed = True
        self.discard()
        self._connection._answer(RstStream(stream_id=self.id, status=ResetStatus.REFUSED_STREAM))

    async def reset(self, status: ResetStatus = ResetStatus.CANCEL) -> None:
        """End both directions at once."""
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
    """A SPDY connection after its HTTP upgrade."""

    def __init__(
        self,
        reader: ByteReader,
        writer: ByteWriter,
        *,
        server: bool = False,
        on_stream: Callable[[SpdyStream], None] | None = None,
    ) -> None:
        """`on_stream`: called with each stream that the other side opens; without it they are refused."""
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
        """Read until the other side disconnects; every stream has ended then. Raises SpdyError."""
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
        except OSError:  # TLS has more words for a lost connection than ConnectionError
            pass
        finally:
            for stream in self._streams.values():
                stream._write_closed = True
                stream._end()
            self._streams.clear()

    async def open_stream(self, headers: HeaderList, *, fin: bool = False) -> SpdyStream:
        """Open a stream; data may be sent at once. `fin`: this side will send nothing on it."""
        if self.going_away:
            raise Unavailable("the other side is closing the connection")
        stream = SpdyStream(self, self._next_id, headers)
        stream._write_closed = fin
        self._next_id += 2
        self._streams[stream.id] = stream
        await self.send(SynStream(stream_id=stream.id, headers=headers, fin=fin))
        return stream

    def accept(self, stream: SpdyStream, headers: HeaderList = ()) -> None:
        """Accept a stream that the other side opened; must come before any data on it.

        Sent immediately: clients wait for it before they open their next stream.
        """
        self._answer(SynReply(stream_id=stream.id, headers=headers))

    async def ping(self, ping_id: int) -> None:
        """Send a PING (with the parity corrected); the answer keeps idle proxies awake and is not awaited."""
        await self.send(Ping(ping_id=ping_id * 2 + self._ping_parity))

    async def send(self, frame: Frame) -> None:
        """Send one frame; waits while the network is slow. Raises Unavailable if the connection is lost."""
        if self._writer.is_closing():
            raise Unavailable("the connection is closed")
        self._writer.write(self._encoder.encode(frame))
        try:
            await self._writer.drain()
        except OSError as error:
            raise Unavailable(f"the connection was lost: {error}") from error

    async def flush(self) -> None:
        """Wait until everything is sent, however slowly it is read. A tunnel does that in its own `close`."""
        if isinstance(self._writer, asyncio.StreamWriter):
            await wait_sent(self._writer.transport)

    async def close(self) -> None:
        """Send GOAWAY and close; data sent before still arrives."""
        self._answer(GoAway(last_stream_id=self._last_peer_id))
        self._writer.close()
        try:
            async with asyncio.timeout(5):
                await self._writer.wait_closed()
        except OSError:  # reset by the peer, or the timeout (a TimeoutError is an OSError)
            pass

    def abort(self) -> None:
        """Close at once, without GOAWAY."""
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
        """Send without waiting; `run` pauses when too many answers were not read."""
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
