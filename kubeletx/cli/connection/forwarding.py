"""Ports of ``port-forward``, and the listener that opens a session at the agent for each local connection."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import aiohttp
import click

from kubeletx.api import InvalidConfig, KubeletxError, Session
from kubeletx.streaming.websocket import WebSocketSession, connect_session

from .client import no_permission, not_running

_BLOCK = 32 * 1024


class Forward(NamedTuple):
    """A local port, and the port of the pod to which it is forwarded. `local` 0: any free port."""

    local: int
    remote: int


def parse_forward(text: str) -> Forward:
    """Parse ``8080:80``, ``80`` (the same port on both sides) or ``:80`` (any free local port)."""
    local, colon, remote = text.rpartition(":")
    numbers = (local or "0", remote) if colon else (remote, remote)
    if not all(number.isascii() and number.isdigit() and int(number) < 65536 for number in numbers):
        raise click.UsageError(f"{text!r} is not a port; write LOCAL:REMOTE, PORT or :REMOTE")
    if int(numbers[1]) == 0:
        raise click.UsageError(f"{text!r}: the pod's port must not be 0")
    return Forward(int(numbers[0]), int(numbers[1]))


def agent_session(socket_path: Path) -> aiohttp.ClientSession:
    """Return an HTTP client of the admin socket; the caller closes it with `async with`.

    Raises Unavailable if the socket does not exist, PermissionDenied if this user may not open it.
    """
    if not socket_path.exists():
        raise not_running(socket_path)
    if not os.access(socket_path, os.W_OK):
        raise no_permission(socket_path)
    connector = aiohttp.UnixConnector(path=str(socket_path), limit=0)
    return aiohttp.ClientSession(
        connector=connector, base_url="http://kubeletx", timeout=aiohttp.ClientTimeout()
    )


async def open_stream(
    client: aiohttp.ClientSession, socket_path: Path, path: str, query: Sequence[tuple[str, str]]
) -> WebSocketSession:
    """Open one session of exec, attach or port-forward (`path`, `query`) at the agent.

    Raises Unavailable if no agent answers on the socket.
    """
    try:
        return await connect_session(client, path, query)
    except KubeletxError as err:
        if isinstance(err.__cause__, aiohttp.ClientConnectorError):
            raise not_running(socket_path) from err
        raise


async def forward(socket_path: Path, path: str, address: str, ports: Sequence[Forward]) -> None:
    """Listen on local ports and forward each connection to the pod, until cancelled.

    `path`: the pod's port-forward path on the admin socket. `address`: local IP address. Raises InvalidConfig if a
    local port cannot be used.
    """
    async with agent_session(socket_path) as client:
        servers = [await _listen(client, socket_path, path, address, port) for port in ports]
        try:
            await asyncio.gather(*(server.serve_forever() for server in servers))
        finally:
            for server in servers:
                server.close()


async def _listen(
    client: aiohttp.ClientSession, socket_path: Path, path: str, address: str, port: Forward
) -> asyncio.Server:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        click.echo(f"Handling connection for {number}")
        try:
            session = await open_stream(client, socket_path, path, [("port", str(port.remote))])
            await carry(session, reader, writer)
        except KubeletxError as err:
            click.echo(f"Error: forwarding {number} -> {port.remote}: {err}", err=True)
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(accept, address, port.local)
    except OSError as err:
        raise InvalidConfig(
            field=f"port {port.local}",
            problem=f"cannot listen on {address}: {err.strerror}",
            fix="choose another",
        ) from err
    number = server.sockets[0].getsockname()[1]
    click.echo(f"Forwarding from {address}:{number} -> {port.remote}")
    return server


async def carry(session: Session, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes between a local connection and a session with the pod until the pod's side ends.

    Then close the session. The local side may half-close before.
    """
    upload = asyncio.create_task(_upload(session, reader), name="port-forward-upload")
    try:
        async for _, data in session.output():
            writer.write(data)
            await writer.drain()
        await session.wait()
    except ConnectionError:
        pass  # the local side disconnected
    finally:
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
        await session.close()


async def _upload(session: Session, reader: asyncio.StreamReader) -> None:
    with suppress(KubeletxError, ConnectionError):
        while data := await reader.read(_BLOCK):
            await session.write(data)
        await session.close_stdin()
