"""An HTTPS client session for tests, which closes all its connections before the event loop ends."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.connector import AddrInfoType


@asynccontextmanager
async def https_session(tls: ssl.SSLContext, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """Context manager that yields an aiohttp session with the TLS settings of `tls`.

    `options`: further arguments of aiohttp.ClientSession. At the end of the block, the session closes its
    connections and waits until they are closed. aiohttp itself would close TLS connections in the background,
    after the test's event loop has ended.
    """
    sockets: list[socket.socket] = []

    def make(address: AddrInfoType) -> socket.socket:
        sockets.append(socket.socket(*address[:3]))
        return sockets[-1]

    connector = aiohttp.TCPConnector(ssl=tls, socket_factory=make)
    try:
        async with aiohttp.ClientSession(connector=connector, **options) as session:
            yield session
    finally:
        while any(one.fileno() >= 0 for one in sockets):  # noqa: ASYNC110  # sockets have no event for it
            await asyncio.sleep(0.001)
