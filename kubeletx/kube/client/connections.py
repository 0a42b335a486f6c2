"""`Connections`: state that all requests to one API server share: credentials, open connections, reachability."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import structlog

from kubeletx.api import Clock

from .access import ClusterAccess
from .counts import RequestCounts
from .credentials import ClientCredentials

if TYPE_CHECKING:
    import aiohttp

log = structlog.get_logger(__name__)

CONNECT_SECONDS = 10.0
_IDLE_SECONDS, _PROBE_SECONDS, _PROBES = 20, 5, 3
"""TCP keep-alive: a peer that vanished silently is detected after 35 seconds."""


class Reachability:
    """Records whether an API server answers. All its clients share one `Reachability`, so that an outage is logged once."""

    def __init__(self) -> None:
        self.back = asyncio.Event()
        """Event that is set when an outage ends. A new event then replaces it for the next outage."""
        self.problem = ""
        """Reason the server does not answer; empty while it does."""
        self._lost_at = float("-inf")
        self._hung_up_at: float | None = None
        self._answered = float("-inf")
        """Send time of the latest answered request."""

    @property
    def silent_seconds(self) -> float:
        """Seconds since the latest answered request was sent; infinite before the first answer."""
        return time.perf_counter() - self._answered

    def note_answer(
        self, problem: str, server: str, *, began: float | None = None, is_hang_up: bool = False
    ) -> None:
        """Record the result of one request. `problem`: why the request failed; empty: it was answered.

        Logs one line when an outage begins and one when it ends. `server`: address for the log. `began`: when
        the request was sent (``time.perf_counter``; None: now). An answer ends an outage only if its request
        was sent after the outage was noticed. A failure is ignored if a request that was sent later has been
        answered. `is_hang_up`: the server closed the connection. The first hang-up begins no outage, since a
        server that shuts down closes some connections and still answers on others: a request sent after it
        must fail too.
        """
        now = time.perf_counter()
        began = now if began is None else began
        if problem and not self.problem:
            if began < self._answered:
                return
            if is_hang_up and (self._hung_up_at is None or began <= self._hung_up_at):
                self._hung_up_at = now if self._hung_up_at is None else self._hung_up_at
                return
            log.warning("Lost the API server", server=server, err=problem)
            self._lost_at = now
        elif self.problem and not problem:
            if began < self._lost_at:
                return
            log.info("Reached the API server again", server=server)
            self.back.set()
            self.back = asyncio.Event()
        if not problem:
            self._hung_up_at = None
            self._answered = max(self._answered, began)
        self.problem = problem


class Connections:
    """Connection pool, credentials and reachability that all requests to one API server share.

    Make it in the event loop that uses it; call `close` at the end.
    """

    def __init__(
        self,
        access: ClusterAccess,
        clock: Clock,
        user_agent: str,
        counts: RequestCounts,
        reach: Reachability | None = None,
    ) -> None:
        self.access = access
        self.host = urlsplit(access.server).netloc
        self.counts = counts
        self.credentials = ClientCredentials(access, clock)
        self.reach = reach or Reachability()
        self.streams: set[asyncio.Timeout] = set()
        """Timeouts of bodies that are read as streams."""
        self._user_agent = user_agent
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections. The next request opens new ones."""
        session, self._session = self._session, None  # a request during the close opens a new one
        if session is not None:
            await session.close()

    async def give_up(self) -> None:
        """Close all connections, and end every stream by letting its deadline expire."""
        log.info("Closed all connections to the API server", server=self.access.server)
        now = asyncio.get_running_loop().time()
        for stream in self.streams:  # aiohttp does not wake the reader of a body when its session is closed
            if not stream.expired():  # an expired one was ended before and has not finished yet
                stream.reschedule(now)
        await self.close()

    def note_answer(self, problem: str, *, began: float | None = None, is_hang_up: bool = False) -> None:
        """Record that a request was answered (`problem` empty), or why it failed; see `Reachability.note_answer`."""
        self.reach.note_answer(problem, self.access.server, began=began, is_hang_up=is_hang_up)

    def session(self) -> aiohttp.ClientSession:
        """Return the connection pool. Makes one at the first use and after `close`."""
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
    """Make a socket with TCP keep-alive, so that a peer that vanishes during a silent watch is detected."""
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
