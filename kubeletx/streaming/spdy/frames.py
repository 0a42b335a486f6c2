"""Classes of the SPDY/3.1 frames. Source: SPDY Protocol Draft 3.1, section 2.6."""

from __future__ import annotations

import enum

import msgspec

HeaderList = tuple[tuple[str, str], ...]
"""Pairs of header name (lower case) and value, in order. Multiple values of a name are joined by NUL characters."""


class ResetStatus(enum.IntEnum):
    """Status codes of RST_STREAM: the reason why a stream was reset."""

    PROTOCOL_ERROR = 1
    INVALID_STREAM = 2
    REFUSED_STREAM = 3
    UNSUPPORTED_VERSION = 4
    CANCEL = 5
    INTERNAL_ERROR = 6
    FLOW_CONTROL_ERROR = 7
    STREAM_IN_USE = 8
    STREAM_ALREADY_CLOSED = 9
    FRAME_TOO_LARGE = 11


class SynStream(msgspec.Struct, frozen=True, kw_only=True):
    """SYN_STREAM: opens a stream. `fin`: the sender will send no data on it.

    `unidirectional`: the receiver must not send data on it. `associated_id`: id of a related stream; 0: none.
    """

    stream_id: int
    headers: HeaderList = ()
    fin: bool = False
    unidirectional: bool = False
    associated_id: int = 0
    priority: int = 0


class SynReply(msgspec.Struct, frozen=True, kw_only=True):
    """SYN_REPLY: accepts a stream that the receiver has opened. `fin`: the sender will send no data on it."""

    stream_id: int
    headers: HeaderList = ()
    fin: bool = False


class Headers(msgspec.Struct, frozen=True, kw_only=True):
    """HEADERS: more headers of an open stream. `fin`: the sender will send no more data on it."""

    stream_id: int
    headers: HeaderList = ()
    fin: bool = False


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Data frame: bytes of a stream. `fin`: the sender will send no more data on it."""

    stream_id: int
    data: bytes = b""
    fin: bool = False


class RstStream(msgspec.Struct, frozen=True, kw_only=True):
    """RST_STREAM: ends a stream immediately, in both directions. `status`: see `ResetStatus`."""

    stream_id: int
    status: int


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """SETTINGS: settings of the connection, as pairs of (setting id, value)."""

    values: tuple[tuple[int, int], ...] = ()


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """PING: the receiver has to send it back unchanged. Ids are odd if the client sends it, even if the server does."""

    ping_id: int


class GoAway(msgspec.Struct, frozen=True, kw_only=True):
    """GOAWAY: the sender is closing the connection, and accepts no new streams.

    `last_stream_id`: the last stream of the receiver that it has accepted. `status`: 0 OK, 1 protocol error, 2
    internal error.
    """

    last_stream_id: int
    status: int = 0


class WindowUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """WINDOW_UPDATE: the receiver may send `delta` more bytes on the stream. Stream 0 is the whole connection."""

    stream_id: int
    delta: int


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """Control frame of an unknown type. SPDY/3.1 requires that it is ignored."""

    type: int
    flags: int
    payload: bytes


Frame = SynStream | SynReply | Headers | Data | RstStream | Settings | Ping | GoAway | WindowUpdate | Unknown
