"""DHCP sockets: one packet socket for each pod, on the pod's own link.

The socket is bound to the end of the veth pair that is in the pod's namespace. So it receives frames of this
pod's guest only, and its answers reach that guest. The namespace needs no address for that, and no process is
started. The kernel's filter passes only DHCP, so a link without requests costs nothing.

A socket belongs to the namespace in which its thread was at creation: a dedicated thread creates it (see
`namespaces`).
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import socket
import struct
from pathlib import Path
from typing import Final

import structlog

from . import namespaces
from .dhcp import SERVER_PORT, Lease, answer
from .names import INNER_DEVICE
from .namespaces import OwnThreads

log = structlog.get_logger(__name__)

_ALL_PROTOCOLS: Final = 0x0003
_SOL_PACKET: Final = 263
_IGNORE_OUTGOING: Final = 23
_SO_ATTACH_FILTER: Final = 26
_MOST_BYTES: Final = 2048
_AT_ONCE: Final = 16
"""Maximum number of requests answered in one turn of the event loop."""

_FILTER: Final = (
    (0x28, 0, 0, 12),  # the frame's type
    (0x15, 0, 6, 0x0800),  # is IPv4
    (0x30, 0, 0, 23),  # its protocol
    (0x15, 0, 4, 17),  # is UDP
    (0xB1, 0, 0, 14),  # the length of its header
    (0x48, 0, 0, 16),  # the port in the UDP header
    (0x15, 0, 1, SERVER_PORT),
    (0x06, 0, 0, _MOST_BYTES),  # take it
    (0x06, 0, 0, 0),  # leave it
)


class DhcpSockets:
    """Answers the DHCP requests of all pods' guests."""

    def __init__(self, threads: OwnThreads) -> None:
        self._threads = threads
        self._sockets: dict[str, socket.socket] = {}

    async def open(self, uid: str, netns: Path, lease: Lease) -> None:
        """Start to answer this pod's guest; a second call does nothing.

        Raises Unavailable if the socket cannot be opened. `netns`: path of the pod's network namespace.
        """
        if uid in self._sockets:
            return
        what = f"cannot answer DHCP on {INNER_DEVICE} of pod {uid}"
        made = await self._threads.run(what, _open, netns)
        if uid in self._sockets:
            made.close()
            return
        self._sockets[uid] = made
        asyncio.get_running_loop().add_reader(made.fileno(), self._answer, uid, made, lease)

    def close(self, uid: str) -> None:
        """Close the pod's socket, since an open socket keeps its namespace alive."""
        raw_socket = self._sockets.pop(uid, None)
        if raw_socket is not None:
            asyncio.get_running_loop().remove_reader(raw_socket.fileno())
            raw_socket.close()

    def close_all(self) -> None:
        for uid in list(self._sockets):
            self.close(uid)

    def _answer(self, uid: str, raw_socket: socket.socket, lease: Lease) -> None:
        for _ in range(_AT_ONCE):
            try:
                frame = raw_socket.recv(_MOST_BYTES)
            except (BlockingIOError, InterruptedError):  # all requests are answered
                return
            except OSError as error:  # ENETDOWN: the device went down, or is gone with its pod
                if error.errno != errno.ENETDOWN:
                    log.warning("Stopped DHCP answers for a machine", pod_uid=uid, err=error.strerror)
                    self.close(uid)
                return
            if (reply := answer(frame, lease)) is not None:
                with contextlib.suppress(OSError):  # the guest asks again
                    raw_socket.send(reply)


# --- on threads of their own ---


def _open(netns: Path) -> socket.socket:
    kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
    with namespaces.entered(netns):
        raw_socket = socket.socket(socket.AF_PACKET, kind, 0)
    try:
        code = b"".join(struct.pack("HBBI", *step) for step in _FILTER)
        holder = ctypes.create_string_buffer(code)
        program = struct.pack("HL", len(_FILTER), ctypes.addressof(holder))
        raw_socket.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        with contextlib.suppress(OSError):  # kernels before 4.20: what goes to the guest is filtered as well
            raw_socket.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
        raw_socket.bind((INNER_DEVICE, _ALL_PROTOCOLS))
    except OSError:
        raw_socket.close()
        raise
    return raw_socket
