"""Finds the well-known CRI sockets, in crictl's order. Used if no endpoint is configured."""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from kubeletx.api import Unavailable

from .grammar import RUNTIME_FLAG

WELL_KNOWN: tuple[tuple[str, str], ...] = (
    ("containerd", "/run/containerd/containerd.sock"),
    ("crio", "/run/crio/crio.sock"),
    ("cri-dockerd", "/run/cri-dockerd.sock"),
)
"""Name and path of each well-known socket; source: cri-tools, docs/crictl.md."""


class RuntimeSocket(NamedTuple):
    """Well-known CRI socket that exists. `listens`: True if a process accepts connections on it."""

    name: str
    path: str
    listens: bool

    @property
    def item(self) -> str:
        """Item of ``--container-runtime-endpoint`` for this socket: ``container:NAME:unix://PATH``."""
        return f"container:{self.name}:unix://{self.path}"


def discover(
    sockets: Sequence[tuple[str, str]] = WELL_KNOWN, listens: Callable[[str], bool] | None = None
) -> tuple[RuntimeSocket, ...]:
    """Return the sockets of `sockets` that exist, in the same order. Raises Unavailable if there is none.

    `listens`: returns True if a process accepts connections on the path; None tries to connect.
    """
    listens = listens or _listens
    present = tuple(RuntimeSocket(name, path, listens(path)) for name, path in sockets if _is_socket(path))
    if not present:
        looked_at = ", ".join(path for _, path in sockets)
        raise Unavailable(  # a runtime may start later
            f"{RUNTIME_FLAG}: not given, and none of the well-known sockets exists: {looked_at}; start a runtime, or give "
            f'{RUNTIME_FLAG} "container:NAME:URL"'
        )
    return present


def describe(present: Sequence[RuntimeSocket]) -> str:
    """Return a text for the log with name and path of each socket."""
    return ", ".join(f"{f.name} at {f.path}{'' if f.listens else ' (nothing listens)'}" for f in present)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(Path(path).stat().st_mode)
    except OSError:
        return False


def _listens(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(0.2)
        try:
            client.connect(path)
        except OSError:  # ECONNREFUSED: a socket that a dead daemon left
            return False
        return True
