"""TCP connections to a machine's own address (port-forward).

A machine's loopback interface is reachable only from inside the guest. A connection is made to the pod's
address, as from another pod. Servers that listen only on the guest's 127.0.0.1 are not reachable.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator

from kubeletx.api import Channel, Conflict, KubeletxError, NotFound, SandboxId, Unavailable
from kubeletx_libvirt.records import Records

CONNECT_SECONDS = 20.0
_CHUNK = 64 * 1024


class Forwards:
    """Connects to TCP ports of one runtime's machines (`SupportsPortForward`)."""

    def __init__(self, records: Records) -> None:
        self._records = records

    async def port_forward(self, sandbox_id: SandboxId, port: int) -> TcpSession:
        """Connect to `port` at the first of the pod's addresses that accepts the connection.

        Raises NotFound for an unknown sandbox, Conflict for a machine without an address, and Unavailable if
        no address accepts.
        """
        record = self._records.sandboxes.get(sandbox_id)
        if record is None:
            raise NotFound(f"sandbox {sandbox_id} does not exist")
        name = f"{record.spec.namespace}/{record.spec.name}"
        if record.is_stopped or not record.ips:
            raise Conflict(f"machine {name} has no address on the pod network")
        refusals = []
        for address in record.ips:
            try:
                return await _connect(address, port)
            except OSError as error:
                refusals.append(f"{address}: {_words(error)}")
        raise Unavailable(f"cannot connect to port {port} of machine {name}: {'; '.join(refusals)}")


async def _connect(address: str, port: int) -> TcpSession:
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            return TcpSession(*await asyncio.open_connection(address, port))
    except TimeoutError as error:
        raise OSError(f"no answer within {CONNECT_SECONDS:g} s") from error


def _words(error: OSError) -> str:
    return os.strerror(error.errno) if error.errno else str(error)


class TcpSession:
    """One TCP connection to a guest. Implements `kubeletx.api.Session`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._end: asyncio.Future[KubeletxError | None] = asyncio.get_running_loop().create_future()

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        try:
            while data := await self._reader.read(_CHUNK):
                yield Channel.STDOUT, data
        except OSError as error:
            self._finish(Unavailable(f"the machine closed the connection: {_words(error)}"))
        self._finish(None)

    async def write(self, data: bytes) -> None:
        """Send data to the guest; waits while the guest does not read.

        Raises Unavailable if the connection is broken.
        """
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise Unavailable(
                f"the machine accepts no more data: {_words(error)}; see whether its server runs"
            ) from error

    async def close_stdin(self) -> None:
        with contextlib.suppress(OSError):
            if not self._writer.is_closing() and self._writer.can_write_eof():
                self._writer.write_eof()

    async def resize(self, width: int, height: int) -> None:
        """Do nothing: a forwarded port has no terminal."""

    async def wait(self) -> int:
        """Wait for the end of the connection and return 0. Raises Unavailable if the connection broke."""
        error = await asyncio.shield(self._end)
        if error is not None:
            raise error
        return 0

    async def close(self) -> None:
        """Close both directions; data that is not sent yet is dropped."""
        self._writer.transport.abort()
        with contextlib.suppress(OSError):  # the guest reset the connection first
            await self._writer.wait_closed()
        self._finish(None)

    def _finish(self, error: KubeletxError | None) -> None:
        if not self._end.done():
            self._end.set_result(error)
