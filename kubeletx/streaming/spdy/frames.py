"""SPDY/3.1 frames as values. Source: SPDY Protocol Draft 3.1, section 2.6."""

from __future__ import annotations

import enum

import msgspec

HeaderList = tuple[tuple[str, str], ...]
"""Names (lower case) and values, in order. Several values of one name are joined by NUL."""


class ResetStatus(enum.IntEnum):
    """Reasons for the reset of a stream."""

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
    """Frame that opens a stream. `fin`: the sender will send no data on it."""

    stream_id: int
    headers: HeaderList = ()
    fin: bool = False
    unidirectional: bool = False
    associated_id: int = 0
    priority: int = 0


class SynReply(msgspec.Struct, frozen=True, kw_only=True):
    """Frame that accepts a stream."""

    stream_id: int
    headers: HeaderList = ()
    fin: bool = False


class Headers(msgspec.Struct, frozen=True, kw_only=True):
    """Frame with more headers of an open stream."""

    stream_id: int
    headers: HeaderList = ()
    fin: bool = False


class Data(msgspec.Struct, frozen=True, kw_only=True):
    """Frame with bytes of a stream. `fin`: no more follow."""

    stream_id: int
    data: bytes = b""
    fin: bool = False


class RstStream(msgspec.Struct, frozen=True, kw_only=True):
    """Frame that ends a stream immediately, in both directions. `status`: see `ResetStatus`."""

    stream_id: int
    status: int


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Frame with settings of the connection: pairs of (setting id, value)."""

    values: tuple[tuple[int, int], ...] = ()


class Ping(msgspec.Struct, frozen=True, kw_only=True):
    """Frame that the other side has to send back unchanged. Ids are odd from the client, even from the server."""

    ping_id: int


class GoAway(msgspec.Struct, frozen=True, kw_only=True):
    """Frame that announces the connection's end: streams after `last_stream_id` were not accepted.

    `status`: 0 OK, 1 protocol error, 2 internal error.
    """

    last_stream_id: int
    status: int = 0


class WindowUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """Frame that allows the receiver to send `delta` more bytes on the stream; stream 0 is the whole connection."""

    stream_id: int
    delta: int


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """Control frame of an unknown type, which SPDY/3.1 says to ignore."""

    type: int
    flags: int
    payload: bytes


Frame = SynStream | SynReply | Headers | Data | RstStream | Settings | Ping | GoAway | WindowUpdate | Unknown
