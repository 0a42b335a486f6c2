"""TCP listener of a server, with limits on connections, since anyone who reaches the port may open them.

A connection counts from its accept, before any TLS handshake, until its descriptor is closed. A connection above a
limit is closed at once, so that descriptors remain for the runtimes, the admin socket and files. If the process has no
descriptor left all the same, accepting pauses: the waiting connection would otherwise make the loop spin and log.
"""

from __future__ import annotations

import asyncio
import errno
import resource
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import structlog

from kubeletx.api import InvalidConfig

log = structlog.get_logger(__name__)

PAUSE_SECONDS = 1.0
BACKLOG = 128
HANDSHAKE_SECONDS = 10.0


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Highest number of open connections: of the port, and of one client address."""

    port: int
    peer: int

    @classmethod
    def within_descriptors(cls, most: int, share: int) -> ConnectionLimits:
        """Return the limits of a port that may use one `share`-th of the process's descriptors, at most `most`.

        One client may use half of that.
        """
        descriptors = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        if descriptors != resource.RLIM_INFINITY:
            most = max(2, min(most, descriptors // share))
        return cls(port=most, peer=most // 2)


class Listener:
    """Accepts the connections of one server from `start` to `stop`; connections made outlive `stop`."""

    def __init__(
        self,
        *,
        flag: str,
        address: str,
        port: int,
        limits: ConnectionLimits,
        tls: ssl.SSLContext | None = None,
        handshake_seconds: float = HANDSHAKE_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        """`flag`: sets the port; for messages. `port` 0: any free port; after `start`, `port` returns it.

        `handshake_seconds`: longest duration of a TLS handshake, and of its end. `pause_seconds`: without descriptors.
        """
        self.port = port
        self._flag = flag
        self._address = address
        self._limits = limits
        self._tls: dict[str, Any] = {}
        if tls is not None:
            self._tls = {
                "ssl": tls,
                "ssl_handshake_timeout": handshake_seconds,
                "ssl_shutdown_timeout": handshake_seconds,
            }
        self._pause_seconds = pause_seconds
        self.sockets: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._peers: Counter[str] = Counter()
        self._is_refusing = False

    async def start(self, make_protocol: Callable[[], asyncio.BaseProtocol]) -> None:
        """Listen, and serve each connection with a protocol of its own. Raises InvalidConfig if that fails."""
        loop = asyncio.get_running_loop()
        try:
            addresses = await loop.getaddrinfo(
                self._address or None, self.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            for family, _, _, _, target in dict.fromkeys(addresses):
                listening = socket.create_server(target[:2], family=family, backlog=BACKLOG)
                self.sockets.append(listening)
                listening.setblocking(False)
        except OSError as error:
            await self.stop()
            # The words of create_server repeat the address in parentheses.
            reason = (error.strerror or str(error)).partition(" (")[0]
            raise InvalidConfig(
                field=f"--{self._flag}",
                problem=f"cannot listen on {self._address}:{self.port}: {reason}",
                fix="choose another address or port",
            ) from error
        self.port = self.sockets[0].getsockname()[1]
        for listening in self.sockets:
            self._spawn(self._accept(listening, make_protocol), f"accept-{self._flag}")
        log.info("Opened port", purpose=self._flag, address=self._address, port=self.port)

    async def stop(self) -> None:
        """Stop listening, and end the TLS handshakes in progress."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for listening in self.sockets:
            listening.close()
        self.sockets.clear()

    async def _accept(
        self, listening: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        loop = asyncio.get_running_loop()
        is_paused = False
        while True:
            try:
                accepted, peer = await loop.sock_accept(listening)
            except OSError as error:
                if error.errno == errno.ECONNABORTED:
                    continue  # the client disconnected while it waited
                if not is_paused:
                    log.error("Paused accepting connections", purpose=self._flag, err=error.strerror)
                    is_paused = True
                await asyncio.sleep(self._pause_seconds)
                continue
            if is_paused:
                log.info("Resumed accepting connections", purpose=self._flag)
                is_paused = False
            connection = _CountedSocket(accepted, peer[0], self._peers)
            if self._may_serve(peer[0]):
                self._spawn(self._serve(connection, make_protocol), f"connection-{self._flag}")
            else:
                connection.close()

    def _may_serve(self, peer: str) -> bool:
        """Return False if the newest connection is above a limit; log that once until the number falls."""
        total = self._peers.total()
        if total <= self._limits.port and self._peers[peer] <= self._limits.peer:
            self._is_refusing = self._is_refusing and total > self._limits.peer // 2
            return True
        if not self._is_refusing:
            log.warning(
                "Refused connections above the limit",
                purpose=self._flag,
                peer=peer,
                connections=total,
                limit=self._limits.port,
                peer_limit=self._limits.peer,
            )
            self._is_refusing = True
        return False

    async def _serve(
        self, connection: socket.socket, make_protocol: Callable[[], asyncio.BaseProtocol]
    ) -> None:
        try:
            await asyncio.get_running_loop().connect_accepted_socket(make_protocol, connection, **self._tls)
        except (OSError, ssl.SSLError) as error:
            connection.close()
            log.debug("Failed a TLS handshake", purpose=self._flag, err=str(error))
            error.__traceback__ = None  # its frames know the error: a cycle that keeps the buffers
        except BaseException:
            connection.close()
            raise

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _CountedSocket(socket.socket):
    """An accepted socket that is in the counter of its peers until its descriptor is closed."""

    def __init__(self, accepted: socket.socket, peer: str, peers: Counter[str]) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.setblocking(False)
        self._peer = peer
        self._peers = peers
        peers[peer] += 1

    def close(self) -> None:
        if self.fileno() >= 0:
            self._peers[self._peer] -= 1
            if not self._peers[self._peer]:
                del self._peers[self._peer]
        super().close()
