"""ConnectionLimits on connections to ports that anyone may open."""

from __future__ import annotations

import asyncio
import gc
import os
import resource
import socket
import ssl
import weakref
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest
import structlog

from kubeletx.linux.listener import ConnectionLimits, Listener
from kubeletx_testing.waiting import until

PAUSE_SECONDS = 0.01


class Echo(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(data)


@asynccontextmanager
async def listening(
    *, port: int = 100, peer: int = 100, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Listener]:
    listener = Listener(
        flag="healthz-port",
        address="0.0.0.0",
        port=0,
        limits=ConnectionLimits(port=port, peer=peer),
        tls=tls,
        pause_seconds=PAUSE_SECONDS,
    )
    await listener.start(Echo)
    try:
        async with asyncio.timeout(60):
            yield listener
    finally:
        await listener.stop()


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    fillers = []
    try:
        with suppress(OSError):
            while True:
                fillers.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


async def connect(
    listener: Listener, opened: ExitStack, peer: str = "127.0.0.1"
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, local_addr=(peer, 0))
    opened.callback(writer.close)
    writer.write(b"x")
    return reader, writer


async def is_served(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read(1) == b"x"
    except ConnectionResetError:  # the refused connection had unread data
        return False


async def test_a_client_above_its_limit_is_refused_and_others_are_served() -> None:
    with ExitStack() as opened, structlog.testing.capture_logs() as logs:
        async with listening(port=5, peer=2) as listener:
            readers = [(await connect(listener, opened))[0] for _ in range(5)]
            assert [await is_served(reader) for reader in readers] == [True, True, False, False, False]
            other, _ = await connect(listener, opened, "127.0.0.2")
            assert await is_served(other)
    (warning,) = [entry for entry in logs if entry["log_level"] == "warning"]
    assert warning["event"] == "Refused connections above the limit"
    assert (warning["purpose"], warning["peer"], warning["peer_limit"]) == ("healthz-port", "127.0.0.1", 2)


async def test_a_port_serves_no_more_than_its_limit_over_all_clients_and_a_closed_connection_makes_room() -> (
    None
):
    with ExitStack() as opened:
        async with listening(port=3, peer=2) as listener:
            peers = [await connect(listener, opened, f"127.0.0.{number}") for number in range(1, 5)]
            assert [await is_served(reader) for reader, _ in peers] == [True, True, True, False]
            writer = peers[0][1]
            writer.close()
            await writer.wait_closed()
            while not await is_served((await connect(listener, opened, "127.0.0.9"))[0]):
                await asyncio.sleep(0)  # the server has not read the end of the closed connection yet


async def test_a_failed_handshake_leaves_nothing_for_the_garbage_collector(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun: list[weakref.ref[SSLProtocol]] = []
    make = SSLProtocol.__init__

    def count(self: SSLProtocol, *args: Any, **kwargs: Any) -> None:
        begun.append(weakref.ref(self))
        make(self, *args, **kwargs)

    monkeypatch.setattr(SSLProtocol, "__init__", count)
    gc.disable()
    try:
        async with listening(tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)) as listener:
            with socket.create_connection(("127.0.0.1", listener.port)) as client:
                client.sendall(b"no TLS at all\n" * 10)
                await until(lambda: begun)
                await until(lambda: begun[0]() is None)
    finally:
        gc.enable()


async def test_without_descriptors_accepting_pauses_with_one_log_line_and_then_goes_on() -> None:
    loop = asyncio.get_running_loop()
    with socket.socket() as client, structlog.testing.capture_logs() as logs:
        client.setblocking(False)
        async with listening() as listener:
            with no_descriptor_left():
                await loop.sock_connect(client, ("127.0.0.1", listener.port))
                await until(lambda: len(logs) == 2)
                resumed_at = loop.time() + 5 * PAUSE_SECONDS
                await until(lambda: loop.time() > resumed_at)
            await loop.sock_sendall(client, b"x")
            assert await loop.sock_recv(client, 1) == b"x"
    assert [entry["event"] for entry in logs] == [
        "Opened port",
        "Paused accepting connections",
        "Resumed accepting connections",
    ]


def test_limits_leave_descriptors_for_the_rest_of_the_agent() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
    try:
        assert ConnectionLimits.within_descriptors(4096, share=4) == ConnectionLimits(port=256, peer=128)
        assert ConnectionLimits.within_descriptors(100, share=4) == ConnectionLimits(port=100, peer=50)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
