"""Duplex streams of exec, attach and port-forward (DECISIONS 17).

A runtime returns either a `StreamUrl` that the node can reach (bytes are proxied unchanged) or a `Session` that the
host serves over WebSocket and SPDY itself.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

import msgspec


class StreamUrl(msgspec.Struct, frozen=True):
    """An http(s) URL of a server for the Kubernetes remote-command or port-forward protocol."""

    url: str


class Channel(enum.IntEnum):
    """Channels of a remote command. Source: Kubernetes v4.channel.k8s.io."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


@runtime_checkable
class Session(Protocol):
    """A running remote command, or one forwarded connection (which uses STDIN and STDOUT only).

    It has one reader and one writer at a time. Closing twice is allowed.
    """

    def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield (STDOUT or STDERR, bytes) until the far end closed both."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes to stdin; returns when the next may be sent (back-pressure)."""
        ...

    async def close_stdin(self) -> None:
        """Half-close: the far end sees end of file, output continues."""
        ...

    async def resize(self, width: int, height: int) -> None:
        """Send a new terminal size in character cells; ignored without a terminal."""
        ...

    async def wait(self) -> int:
        """The exit code, once output has ended; 0 for a forwarded connection that closed normally."""
        ...

    async def close(self) -> None:
        """Abandon the session and free its resources."""
        ...


class StreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request of exec or attach. `command` is empty for attach."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False
