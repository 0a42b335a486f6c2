"""Less memory for connections that are silent most of the time.

asyncio gives each TLS connection a buffer of 256 KiB for what it reads (CPython 3.11 to 3.13, asyncio.sslproto), filled
with zeros and so really taken. A node follows each object of its pods by a watch of its own, hundreds perhaps, each on
a connection of its own; an event has a few kilobytes. One TLS record has at most 16 KiB.
"""

from __future__ import annotations

import asyncio
from typing import Final

READ_BYTES: Final = 20 * 1024


def shrink(transport: asyncio.BaseTransport | None) -> bool:
    """Give the connection a small buffer to read into; False: it has none of the known form and stays as it is.

    Call it between reads: from a task, never from the transport's own callbacks.
    """
    protocol = getattr(transport, "_ssl_protocol", None)
    if not isinstance(getattr(protocol, "_ssl_buffer", None), bytearray):
        return False
    assert protocol is not None
    protocol.max_size = READ_BYTES
    protocol._ssl_buffer = bytearray(READ_BYTES)
    protocol._ssl_buffer_view = memoryview(protocol._ssl_buffer)
    return True
