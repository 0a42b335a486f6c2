"""Bytes written to a connection that the kernel has not taken yet.

A closed TLS connection of asyncio waits some seconds for the peer's close message and then drops what it still
holds, up to a megabyte: the end of a slow client's data. So code that closes a connection waits here first.
"""

from __future__ import annotations

import asyncio
from typing import Final

_LOOK_SECONDS: Final = 0.05
"""Polling interval: asyncio reports when a buffer has room, not when it is empty."""


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Return the number of bytes that the kernel has not taken yet, in all buffers of the connection.

    The buffer of the socket below TLS is reachable only by private names of asyncio.
    """
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return transport.get_write_buffer_size() + (below.get_write_buffer_size() if below is not None else 0)


async def wait_sent(transport: asyncio.WriteTransport) -> None:
    """Wait until the kernel has taken all bytes, or the connection is closing."""
    while not transport.is_closing() and unsent_bytes(transport):  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(_LOOK_SECONDS)
