"""SPDY/3.1: the framing that Kubernetes still uses for exec, attach and port-forward.

`frames` are the values, `codec` converts bytes to frames and back without any I/O, `connection` runs a client or a
server over asyncio streams.

Kubernetes peers (containerd, the API server, kubectl) all use the same implementation, which supports neither SETTINGS
nor flow-control windows. So this one sends no WINDOW_UPDATE and obeys none; back-pressure is TCP's: a connection whose
streams hold too much unread data is not read any further.
"""

from .codec import Decoder, Encoder, SpdyError
from .connection import ByteReader, ByteWriter, SpdyConnection, SpdyStream
from .frames import (
    Data,
    Frame,
    GoAway,
    Headers,
    Ping,
    ResetStatus,
    RstStream,
    Settings,
    SynReply,
    SynStream,
    Unknown,
    WindowUpdate,
)

__all__ = [
    "ByteReader",
    "ByteWriter",
    "Data",
    "Decoder",
    "Encoder",
    "Frame",
    "GoAway",
    "Headers",
    "Ping",
    "ResetStatus",
    "RstStream",
    "Settings",
    "SpdyConnection",
    "SpdyError",
    "SpdyStream",
    "SynReply",
    "SynStream",
    "Unknown",
    "WindowUpdate",
]
