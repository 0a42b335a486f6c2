"""An HTTP client session for tests that leaves nothing to a closed loop."""

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
    """A session that trusts and shows what `tls` says; `options` as for aiohttp.ClientSession.

    Behind the block all its connections are closed. aiohttp itself lets those it released say their TLS farewell in the
    background, which a test's loop does not live to see.
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
