"""Waits until data that were written to an asyncio transport have been passed to the kernel.

Call `wait_sent` before closing a connection. A closed TLS transport of asyncio waits only some seconds for the peer's
close message, and then drops its unsent data, up to a megabyte. So a slow client would lose the end of the data.
"""

from __future__ import annotations

import asyncio
from typing import Final

_LOOK_SECONDS: Final = 0.05
"""Polling interval. asyncio does not report when a buffer is empty, only when it accepts data again."""


def unsent_bytes(transport: asyncio.WriteTransport) -> int:
    """Return the number of bytes that were written to `transport` and not yet passed to the kernel.

    With TLS this includes the buffer of the underlying socket, which is read through private attributes of
    asyncio.
    """
    below = getattr(getattr(transport, "_ssl_protocol", None), "_transport", None)
    return transport.get_write_buffer_size() + (below.get_write_buffer_size() if below is not None else 0)


async def wait_sent(transport: asyncio.WriteTransport) -> None:
    """Wait until all written bytes have been passed to the kernel, or the connection is closing. No time limit."""
    while not transport.is_closing() and unsent_bytes(transport):  # noqa: ASYNC110 - there is no event for this
        await asyncio.sleep(_LOOK_SECONDS)
