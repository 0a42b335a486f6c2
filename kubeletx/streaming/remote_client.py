"""Client of a runtime's streaming server over SPDY/3.1, for exec, attach and port-forward.

`open_session` uses subprotocol v4.channel.k8s.io, `open_port_forward` uses portforward.k8s.io. Both return a `Session`
once the streams are open; the caller sets the deadline. The session has one task that reads the connection. The task
ends in `close`, or when the server disconnects.
"""

from __future__ import annotations

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator

import msgspec

from kubeletx.api import Channel, Internal, Session, StreamRequest, Unavailable

from .spdy import SpdyConnection, SpdyError, SpdyStream
from .status import exit_code_of
from .upgrade import connect_spdy

REMOTE_COMMAND_V4 = "v4.channel.k8s.io"
PORT_FORWARD = "portforward.k8s.io"

_request_ids = itertools.count()


async def open_session(url: str, request: StreamRequest, *, tls: ssl.SSLContext | None = None) -> Session:
    """Connect to an exec or attach URL of a streaming server, and open the streams that `request` selects.

    `tls`: for https URLs; None: the server's certificate is checked against the system's CAs. The caller sets
    the deadline.
    """
    connection = await _connect(url, REMOTE_COMMAND_V4, tls)
    try:
        error = await connection.open_stream((("streamtype", "error"),))
        streams: dict[Channel, SpdyStream] = {}
        for wanted, channel in (
            (request.stdin, Channel.STDIN),
            (request.stdout, Channel.STDOUT),
            (request.stderr and not request.tty, Channel.STDERR),
            (request.tty, Channel.RESIZE),
        ):
            if wanted:
                streams[channel] = await connection.open_stream((("streamtype", channel.name.lower()),))
        return SpdySession(connection, error, streams)
    except BaseException:
        connection.abort()
        raise


async def open_port_forward(url: str, port: int, *, tls: ssl.SSLContext | None = None) -> Session:
    """Connect to a port-forward URL of a streaming server, and open one connection to `port` of the pod.

    `tls`: as for `open_session`.
    """
    return await forward_over(await _connect(url, PORT_FORWARD, tls), port)


async def forward_over(connection: SpdyConnection, port: int) -> Session:
    """Open one connection to `port` of the pod over an open SPDY connection with subprotocol portforward.k8s.io.

    The returned session owns the SPDY connection, and closes it.
    """
    try:
        headers = (("port", str(port)), ("requestid", str(next(_request_ids))))
        error = await connection.open_stream((("streamtype", "error"), *headers), fin=True)
        data = await connection.open_stream((("streamtype", "data"), *headers))
        return SpdySession(connection, error, {Channel.STDIN: data, Channel.STDOUT: data}, forwards=True)
    except BaseException:
        connection.abort()
        raise


async def _connect(url: str, protocol: str, tls: ssl.SSLContext | None) -> SpdyConnection:
    reader, writer, picked = await connect_spdy(url, [protocol], tls=tls)
    if picked not in ("", protocol):
        writer.close()
        raise Internal(
            f"the streaming server chose subprotocol {picked!r}, and only {protocol!r} was offered"
        )
    return SpdyConnection(reader, writer)


class SpdySession:
    """Client's side of an exec, an attach or one forwarded connection over SPDY. Implements `Session`."""

    def __init__(
        self,
        connection: SpdyConnection,
        error: SpdyStream,
        streams: dict[Channel, SpdyStream],
        *,
        forwards: bool = False,
    ) -> None:
        """`error`: the stream on which the server reports the result. `streams`: the data streams, by channel.

        `forwards`: True for a forwarded connection, where an empty result means success.
        """
        self._connection, self._error, self._streams = connection, error, streams
        self._forwards = forwards
        self._reader = asyncio.create_task(self._run(), name="spdy-session")
        self._exit: asyncio.Task[int] | None = None

    async def output(self) -> AsyncIterator[tuple[Channel, bytes]]:
        channels = [c for c in (Channel.STDOUT, Channel.STDERR) if c in self._streams]
        if len(channels) == 1:
            while data := await self._streams[channels[0]].read():
                yield channels[0], data
            return
        pending = {self._read(channel) for channel in channels}
        try:
            while pending:
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    channel, data = task.result()
                    if data:
                        pending.add(self._read(channel))
                        yield channel, data
        finally:
            for task in pending:
                task.cancel()

    async def write(self, data: bytes) -> None:
        await self._stdin().write(data)

    async def close_stdin(self) -> None:
        stream = self._streams.get(Channel.STDIN)
        if stream is not None:
            try:
                await stream.close_write()
            except Unavailable:
                pass

    async def resize(self, width: int, height: int) -> None:
        stream = self._streams.get(Channel.RESIZE)
        if stream is not None:
            await stream.write(msgspec.json.encode({"Width": width, "Height": height}) + b"\n")

    async def wait(self) -> int:
        """Wait for the server's report, and return the exit code; 0 for a forwarded connection without an error.

        Raises Internal if the server reports another error, with its message. Raises Unavailable if the server
        disconnected without a report.
        """
        report = await self._error.read_all()
        if self._forwards:
            if report:
                raise Internal(report.decode(errors="replace").strip())
            return 0
        if not report:
            raise Unavailable(
                "the streaming server closed the connection before it reported the command's end; the command may still run"
            )
        return exit_code_of(report)

    async def close(self) -> None:
        self._reader.cancel()
        try:
            await asyncio.wait([self._reader])
            await self._connection.close()
        finally:  # also when the closing is cancelled
            self._connection.abort()

    def _stdin(self) -> SpdyStream:
        try:
            return self._streams[Channel.STDIN]
        except KeyError:
            raise Unavailable(
                "the session was opened without stdin; ask for stdin, as with exec -i"
            ) from None

    def _read(self, channel: Channel) -> asyncio.Task[tuple[Channel, bytes]]:
        async def read() -> tuple[Channel, bytes]:
            return channel, await self._streams[channel].read()

        return asyncio.create_task(read(), name=f"spdy-{channel.name.lower()}")

    async def _run(self) -> None:
        try:
            await self._connection.run()
        except SpdyError:
            self._connection.abort()
