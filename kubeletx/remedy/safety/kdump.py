"""Messages of fence_kdump: the crash kernel of a node sends them while it saves the memory, so no pod runs there any more.

A message has no signature: it counts only if its sender has the address of exactly one Node. Source: fence-agents,
agents/kdump/message.h; fence_kdump_send repeats it every 10 s.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import struct
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from kubeletx.api import Clock

from ..model import KernelDump, NodeView

log = structlog.get_logger(__name__)

DUMP_PAUSE: Final = 30.0
"""Seconds: a kernel dump has ended when no message of it has come for this time."""
_MESSAGE: Final = struct.pack("<II", 0x1B302A40, 1)


class KernelDumps(asyncio.DatagramProtocol):
    """Dumps that nodes have announced to this process."""

    def __init__(
        self, nodes: Callable[[], Mapping[str, NodeView]], clock: Clock, changed: Callable[[], object]
    ) -> None:
        """`changed`: called when a dump begins."""
        self._nodes = nodes
        self._clock = clock
        self._changed = changed
        self._since: float | None = None
        self._heard: dict[str, tuple[float, float]] = {}

    async def listen(self, port: int) -> None:
        """Listen on all addresses until cancelled. If the port cannot be had, this is logged and nothing is heard."""
        has_both = socket.has_dualstack_ipv6()
        transport = None
        try:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: self, local_addr=("::" if has_both else "0.0.0.0", port)
            )
        except OSError as error:
            log.warning("Kernel dumps of nodes are not heard", port=port, err=str(error))
        try:
            await asyncio.Event().wait()
        finally:
            if transport is not None:
                transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        del transport
        self._since = self._clock.monotonic()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if data != _MESSAGE:
            return
        sender = _address(addr[0])
        names = [node.name for node in self._nodes().values() if sender in map(_address, node.addresses)]
        if len(names) != 1:
            log.info("A message of a kernel dump is ignored", sender=str(sender), nodes=len(names))
            return
        now = self._clock.monotonic()
        (name,) = names
        was_running = self.of(name).is_running
        self._heard[name] = (self._heard[name][0] if was_running else now, now)
        if not was_running:
            log.info("A node writes a kernel dump", node=name)
            self._changed()

    def of(self, node: str) -> KernelDump:
        """Return the present state of the node's dump."""
        if self._since is None:
            return KernelDump()
        now = self._clock.monotonic()
        if node in self._heard:
            first, last = self._heard[node]
            if now - last < DUMP_PAUSE:
                return KernelDump(is_running=True, seconds=now - first)
        return KernelDump(seconds=now - self._since)


def _address(text: str) -> str:
    """Return an address in one form: an IPv4 address that comes over IPv6 is IPv4, and a zone does not count."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)
