"""Streams of exec, attach and port-forward (DECISIONS 17).

For such a request a runtime returns either the `StreamUrl` of its own streaming server, to which the agent copies all
bytes unchanged, or a `Session`, which the agent itself serves to the client over WebSocket or SPDY.
"""

from __future__ import annotations

import enum
from collections.abc import AsyncIterator
from typing import Protocol, runtime_checkable

import msgspec


class StreamUrl(msgspec.Struct, frozen=True):
    """URL (http or https) of a runtime's streaming server for exec, attach or port-forward, as in CRI."""

    url: str


class Channel(enum.IntEnum):
    """Channels of exec and attach, with their numbers on the wire. Source: Kubernetes v4.channel.k8s.io."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


@runtime_checkable
class Session(Protocol):
    """Streams of one running exec or attach, or of one forwarded connection.

    A forwarded connection uses STDIN for the data to the pod, and STDOUT for the data from it. At most one task
    may read and one may write at a time. `close` may be called twice.
    """

    def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        """Yield output as pairs of STDOUT or STDERR and bytes, until the process or the pod has closed both."""
        ...

    async def write(self, data: bytes) -> None:
        """Send bytes to stdin. Waits while the other side does not read, before more can be sent."""
        ...

    async def close_stdin(self) -> None:
        """Close stdin: the process or the pod reads end of file. Output continues."""
        ...

    async def resize(self, width: int, height: int) -> None:
        """Set the terminal's size in character cells; ignored if there is no terminal."""
        ...

    async def wait(self) -> int:
        """Return the exit code, once `output` has ended; 0 for a forwarded connection that was closed normally."""
        ...

    async def close(self) -> None:
        """End the session in any state, and free its resources."""
        ...


class StreamRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Streams that a client of exec or attach has requested. `command`: command to run; empty for attach."""

    command: tuple[str, ...] = ()
    stdin: bool = False
    stdout: bool = True
    stderr: bool = True
    tty: bool = False
