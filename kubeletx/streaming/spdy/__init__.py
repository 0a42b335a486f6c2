"""SPDY/3.1: the framing that Kubernetes still uses for exec, attach and port-forward.

The module `frames` has a class for each frame, `codec` converts bytes to frames and back without I/O, `connection`
implements client and server over asyncio streams.

Kubernetes programs (containerd, the API server, kubectl) all use the same SPDY implementation, which supports neither
SETTINGS nor flow-control windows. So this package sends no WINDOW_UPDATE and ignores received ones. Back-pressure is
left to TCP: while the streams of a connection have too much unread data, the connection is not read.
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
