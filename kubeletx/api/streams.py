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
    """URL of a server for the remote-command or port-forward protocol of Kubernetes, http or https."""

    url: str


class Channel(enum.IntEnum):
    """Channels of a remote command and their numbers. Source: Kubernetes v4.channel.k8s.io."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


@runtime_checkable
class Session(Protocol):
    """Running remote command, or one forwarded connection, which uses STDIN and STDOUT only.

    At most one task reads it and one writes it at a time. It may be closed twice.
    """

    def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield (STDOUT or STDERR, bytes) until the far end has closed both."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes to stdin. Returns once more may be sent (back-pressure)."""
        ...

    async def close_stdin(self) -> None:
        """Send the end of stdin. The far end reads end of file; output continues."""
        ...

    async def resize(self, width: int, height: int) -> None:
        """Send the terminal's new size in character cells; ignored without a terminal."""
        ...

    async def wait(self) -> int:
        """Return the exit code, once output has ended; 0 for a forwarded connection that closed normally."""
        ...

    async def close(self) -> None:
        """End the session, whatever its state, and free its resources."""
        ...


class StreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Streams that a client of exec or attach wants. `command` is empty for attach."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False
