"""`ChildProcess`: one running child, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from typing import cast

import structlog

from kubeletx.api import Unavailable

from .control import CONTROL, Control
from .peer import CallHandler, Peer
from .remote import remote_class

log = structlog.get_logger(__name__)

MODULE = "kubeletx.runtimes.isolation.child"


class ChildProcess:
    """A running child, made by `start`. `peer`: the connection; `control`: calls to the child's own methods."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, peer: Peer) -> None:
        self._name = name
        self._process = process
        self._reading = asyncio.create_task(peer.run(), name=f"runtime-{name}-child")
        self.peer = peer
        self.control = cast("Control", remote_class(Control)(lambda: peer, CONTROL))
        self.started_at = asyncio.get_running_loop().time()

    @classmethod
    async def start(cls, name: str, server: CallHandler) -> ChildProcess:
        """Start a child for runtime `name`; `server` handles its calls."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                MODULE,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            ours.close()
            raise Unavailable(f"runtime {name}: cannot start its process: {error.strerror}") from error
        finally:
            theirs.close()
        ours.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=ours)
        return cls(name, process, Peer(f"the process of runtime {name}", reader, writer, server))

    @property
    def pid(self) -> int:
        """Process id of the child."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """True while the child can be called."""
        return self._process.returncode is None and not self.peer.is_closed

    async def stop(self, grace_seconds: float) -> None:
        """Close the connection, wait for the child's end, kill it if necessary. The runtime's own processes run on."""
        self.peer.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace_seconds):
                await self._process.wait()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it ended between the timeout and the signal
                os.kill(self._process.pid, signal.SIGKILL)
            await self._process.wait()
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)
