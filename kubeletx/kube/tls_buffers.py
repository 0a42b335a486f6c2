"""Smaller buffers for TLS connections that are silent most of the time.

asyncio gives each TLS connection a read buffer of 256 KiB (CPython 3.11 to 3.13, asyncio.sslproto), filled with zeros
and so resident. A node watches each object of its pods separately, hundreds perhaps, each on its own connection; an
event has a few kilobytes. One TLS record has at most 16 KiB.

The kubelet API's server pays more: every silent connection to it takes as much. And large buffers are slow: OpenSSL
returns one record at a time, and CPython allocates a whole buffer for each.
"""

from __future__ import annotations

import asyncio
from asyncio import sslproto
from typing import Final

READ_BYTES: Final = 20 * 1024


def begin_small() -> None:
    """Make every new TLS connection of this process start with a small read buffer. Programs call it at their start."""
    sslproto.SSLProtocol.max_size = READ_BYTES


def shrink(transport: asyncio.BaseTransport | None) -> bool:
    """Shrink the read buffer of a TLS connection, and return True; False if its buffer is of an unknown type.

    Call it between reads: from a task, never from the transport's own callbacks.
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
