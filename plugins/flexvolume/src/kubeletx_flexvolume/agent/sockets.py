"""The agent's Unix sockets: private from the first moment, one live agent for each directory. All functions block.

The directory has mode 0700 before the socket is made in it. The new socket replaces a stale one by a rename. An
exclusive lock on the directory shows that its agent lives; the kernel drops it when the agent ends, however that
happens.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import Final

from kubeletx.api import Conflict
from kubeletx.linux.files import private_directory
from kubeletx.linux.locks import LockHeld, lock_descriptor

from .wire import SOCKET

_NEW: Final = ".agent.sock.new"
BACKLOG: Final = 1024
"""Length of the queue. A kubelet that starts calls the driver for all its volumes at once."""
_CREDENTIALS: Final = struct.Struct("3i")


class PrivateSocket:
    """A listening socket, with the lock on its directory. Make it with `open_socket`."""

    def __init__(self, directory: Path, lock: int, listening: socket.socket) -> None:
        self.directory = directory
        self.listening = listening
        self._lock = lock

    def close(self) -> None:
        """Remove the socket, and release the lock on its directory."""
        (self.directory / SOCKET).unlink(missing_ok=True)
        self.listening.close()
        os.close(self._lock)


def open_socket(directory: Path) -> PrivateSocket:
    """Listen on a socket in `directory`. Raises Conflict, which names its PID, if another agent does, and OSError."""
    private_directory(directory)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            lock_descriptor(lock, directory)
        except LockHeld:
            raise _taken(directory, find_agent(directory)) from None
        pid = find_agent(directory)  # an agent without the lock, such as one of another version
        if pid is not None:
            raise _taken(directory, pid)
        return PrivateSocket(directory, lock, _listen(lock))
    except BaseException:
        os.close(lock)
        raise


def find_agent(directory: Path) -> int | None:
    """Return the PID of the agent that serves the socket in `directory`; 0: it is not visible, None: there is none."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.setblocking(False)
        try:
            descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            one.connect(f"/proc/self/fd/{descriptor}/{SOCKET}")
            return peer_of(one)[0]
        except BlockingIOError:  # its queue is full
            return 0
        except OSError:
            return None
        finally:
            os.close(descriptor)


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return PID and user of the process at the other end. Source: unix(7), SO_PEERCRED."""
    data = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    pid, uid, _ = _CREDENTIALS.unpack(data)
    return pid, uid


def _listen(directory: int) -> socket.socket:
    """Return a listening socket. It is bound by the path of a descriptor, as an address has at most 107 characters."""
    base = f"/proc/self/fd/{directory}"
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        Path(base, _NEW).unlink(missing_ok=True)
        listening.bind(f"{base}/{_NEW}")  # no other user reaches it: the directory is private
        Path(base, _NEW).chmod(0o600)
        listening.listen(BACKLOG)
        Path(base, _NEW).replace(Path(base, SOCKET))
    except BaseException:
        listening.close()
        raise
    return listening


def _taken(directory: Path, pid: int | None) -> Conflict:
    who = f"PID {pid}" if pid else "a process that is not visible here"
    return Conflict(
        f"another storage agent, {who}, serves {directory}; stop it, or give this one other directories"
    )
