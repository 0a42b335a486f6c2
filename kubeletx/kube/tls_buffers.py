"""Smaller buffers for TLS connections that are silent most of the time.

asyncio gives each TLS connection a read buffer of 256 KiB (CPython 3.11 to 3.13, asyncio.sslproto). It is filled with
zeros, so it is resident memory. A node watches each config map and secret of its pods on its own connection, and may
have hundreds of these. An event has a few kilobytes, and one TLS record has at most 16 KiB.

Each idle connection to the kubelet API's server has such a buffer, too. And large buffers are slow: OpenSSL returns one
record at a time, and CPython allocates a whole buffer for each record.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from typing import Final

READ_BYTES: Final = 20 * 1024


def begin_small() -> None:
    """Give every new TLS connection of this process a small read buffer. Call it once when the program starts."""
    sslproto.SSLProtocol.max_size = READ_BYTES


def shrink(transport: asyncio.BaseTransport | None) -> bool:
    """Shrink the read buffer of a TLS connection to `READ_BYTES`, unless it is smaller; returns True.

    Returns False for a connection without TLS or with an unknown type of buffer. Call it between reads: from a
    task, never from the transport's own callbacks.
    """
    protocol = getattr(transport, "_ssl_protocol", None)
    if not isinstance(getattr(protocol, "_ssl_buffer", None), bytearray):
        return False
    assert protocol is not None
    if len(protocol._ssl_buffer) <= READ_BYTES:
        return True
    protocol.max_size = READ_BYTES
    protocol._ssl_buffer = bytearray(READ_BYTES)
    protocol._ssl_buffer_view = memoryview(protocol._ssl_buffer)
    return True
