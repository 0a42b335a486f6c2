"""`Connections`: what all requests to one API server share: credentials, kept connections, and whether it answers."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from kubeletx.api import Clock

from .access import ClusterAccess
from .counts import RequestCounts
from .credentials import Credentials

if TYPE_CHECKING:
    import aiohttp

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 10.0
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 20, 5, 3
"""A peer that went away without a word is noticed after 35 seconds of silence."""


class Connections:
    """Made in the event loop that it is used in; `close` at the end."""

    def __init__(self, access: ClusterAccess, clock: Clock, user_agent: str, counts: RequestCounts) -> None:
        self.access = access
        self.host = urlsplit(access.server).netloc
        self.counts = counts
        self.credentials = Credentials(access, clock)
        self.back = asyncio.Event()
        """Set once, when a server that was lost answers again; the next loss has another."""
        self.problem = ""
        """Why the server does not answer; empty while it does."""
        self.streams: set[asyncio.Timeout] = set()
        """Of bodies that are read as they come."""
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close them all."""
        session, self._session = self._session, None  # who asks meanwhile gets a new one
        if session is not None:
            await session.close()

    async def give_up(self) -> None:
        """Close them all, and end every stream."""
        log.info("Closed all connections to the API server", server=self.access.server)
        now = asyncio.get_running_loop().time()
        for one in self.streams:  # aiohttp tells nobody who reads a body that its session was closed
            if not one.expired():  # else it was given up before and is still about to end
                one.reschedule(now)
        await self.close()

    def heard(self, problem: str) -> None:
        """One line when the server is lost, one when it is there again."""
        if problem and not self.problem:
            log.warning("Lost the API server", server=self.access.server, err=problem)
        elif self.problem and not problem:
            log.info("Reached the API server again", server=self.access.server)
            self.back.set()
            self.back = asyncio.Event()
        self.problem = problem

    def session(self) -> aiohttp.ClientSession:
        """The pool; made when it is first needed."""
        import aiohttp

        if self._session is None or self._session.closed:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0, keepalive_timeout=60.0, socket_factory=_socket, enable_cleanup_closed=False
                ),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
                headers={"User-Agent": self._user_agent, "Accept": "application/json"},
                auto_decompress=True,
                read_bufsize=1 << 18,
                skip_auto_headers=("Content-Type",),
            )
        return self._session


def _socket(info: Any) -> socket.socket:
    """With keep-alive: a watch may be silent for minutes, and so may a peer that is gone."""
    family, kind, protocol, _, _ = info
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_SECONDS)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
    made.setsockopt(
        socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * (_IDLE_SECONDS + _PROBE_SECONDS * _PROBES)
    )
    return made
