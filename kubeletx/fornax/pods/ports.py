"""`HostPorts`: ports of the node for the container ports of pods, in slots of ten.

A pod gets as many slots as it needs. Ports that another program or another pod uses are skipped. The search for a free
slot continues after the last slot that was given away, so that a port is reused as late as possible.

Source: fornax-serverless, pkg/nodeagent (slots of 10 from 1024, 2000 slots).
"""

from __future__ import annotations

import itertools
import socket
from collections.abc import Callable, Container, Iterable
from typing import Final

from kubeletx.api import Unavailable

SLOT_PORTS: Final = 10
FIRST_PORT: Final = 1024
SLOTS: Final = 2000


class HostPorts:
    """The host ports of all pods by the identifiers of the pods."""

    def __init__(self, is_free: Callable[[int], bool]) -> None:
        """`is_free`: returns True if no program of the node uses the port."""
        self._is_free = is_free
        self._next = 0
        self._taken: dict[int, str] = {}
        """Pod by slot."""

    def take(self, pod_id: str, count: int, foreign: Container[int] = ()) -> tuple[int, ...]:
        """Return `count` ports for the pod. Raises Unavailable if there are not enough free ones.

        `foreign`: host ports of other pods that are not in slots.
        """
        found: list[int] = []
        slots: list[int] = []
        for step in range(SLOTS if count else 0):
            slot = (self._next + step) % SLOTS
            if slot in self._taken:
                continue
            begin = FIRST_PORT + slot * SLOT_PORTS
            own = (port for port in range(begin, begin + SLOT_PORTS) if port not in foreign)
            free = filter(self._is_free, own)
            ports = list(itertools.islice(free, count - len(found)))
            if ports:
                found += ports
                slots.append(slot)
            if len(found) == count:
                break
        if len(found) < count:
            last = FIRST_PORT + SLOTS * SLOT_PORTS - 1
            raise Unavailable(
                f"pod {pod_id} needs {count} host ports; {len(found)} of {FIRST_PORT} to {last} are free"
            )
        self._taken.update(dict.fromkeys(slots, pod_id))
        if slots:
            self._next = (slots[-1] + 1) % SLOTS
        return tuple(found)

    def restore(self, pod_id: str, ports: Iterable[int]) -> None:
        """Give the pod the slots of ports that it got earlier."""
        for port in ports:
            slot = (port - FIRST_PORT) // SLOT_PORTS
            if 0 <= slot < SLOTS:
                self._taken[slot] = pod_id

    def release(self, pod_id: str) -> None:
        """Take back all ports of the pod."""
        self._taken = {slot: owner for slot, owner in self._taken.items() if owner != pod_id}

    def owners(self) -> frozenset[str]:
        """Return the identifiers of the pods that have ports."""
        return frozenset(self._taken.values())


def is_unused(port: int) -> bool:
    """Return True if no program of this node listens on the TCP or UDP port, on any address."""
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        with socket.socket(socket.AF_INET, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, kind == socket.SOCK_STREAM)
            try:
                probe.bind(("", port))
            except OSError:
                return False
    return True
