"""SPDY/3.1: the framing that Kubernetes still speaks for exec, attach and port-forward.

`frames` are the values, `codec` turns bytes into frames and back without any I/O, `connection` runs a client
or a server over asyncio streams.

Kubernetes peers (containerd, the API server, kubectl) all use the same implementation, which knows neither
SETTINGS nor flow-control windows. So we send no WINDOW_UPDATE and obey none; back-pressure is TCP's: a
connection whose streams hold too much unread data is not read any further.
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
