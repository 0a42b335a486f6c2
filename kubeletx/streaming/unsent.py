"""What was written to a connection and is not the kernel's yet.

A TLS connection of asyncio that is closed waits some seconds for the other side's good-bye and then drops what it still
holds, up to a megabyte: the end of what a slow client was to read. So whoever is about to close first waits here.
"""

from __future__ import annotations

import asyncio
from typing import Final

_LOOK_SECONDS: Final = 0.05
"""asyncio tells when a buffer has room, not when it is empty."""


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Of all buffers. Below that of TLS is one of the socket, which only private names of asyncio lead to."""
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return transport.get_write_buffer_size() + (below.get_write_buffer_size() if below is not None else 0)


async def wait_sent(transport: asyncio.WriteTransport) -> None:
    """Until the kernel has everything, or the connection is closed."""
    while not transport.is_closing() and unsent_bytes(transport):  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(_LOOK_SECONDS)
