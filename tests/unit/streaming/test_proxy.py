import asyncio
import socket
import ssl
from pathlib import Path

from kubeletx.streaming.proxy import Copied, End, Relay
from kubeletx_testing.apiserver import CertificateAuthority
from kubeletx_testing.waiting import until

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def far_end(end: End) -> Streams:
    """The other side of a connection that is given to one end of a relay."""
    ours, theirs = socket.socketpair()
    await asyncio.get_running_loop().create_connection(lambda: end, sock=ours)
    return await asyncio.open_connection(sock=theirs)


async def test_bytes_go_both_ways_and_half_closes_are_passed_on() -> None:
    relay = Relay()
    client, server = await far_end(relay.left), await far_end(relay.right)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(60):
        client[1].write(b"question")
        client[1].write_eof()
        assert await server[0].read() == b"question"
        server[1].write(b"answer, after the question's end")
        server[1].write_eof()
        assert await client[0].read() == b"answer, after the question's end"
        assert await running == Copied(right=8, left=32)
    for _, writer in (client, server):
        writer.close()


async def test_a_reader_that_is_slow_holds_the_writer_back_and_gets_everything() -> None:
    relay = Relay()
    client, server = await far_end(relay.left), await far_end(relay.right)
    running = asyncio.create_task(relay.run())
    sent = 0
    try:
        async with asyncio.timeout(1):
            while sent < 64 << 20:
                client[1].write(bytes(1 << 16))
                sent += 1 << 16
                await client[1].drain()
    except TimeoutError:
        pass
    assert sent < 16 << 20
    client[1].write_eof()
    async with asyncio.timeout(60):
        assert len(await server[0].read()) == sent
        server[1].close()
        assert await running == Copied(right=sent, left=0)
    client[1].close()


async def test_an_end_that_breaks_ends_both_directions() -> None:
    relay = Relay()
    client, server = await far_end(relay.left), await far_end(relay.right)
    running = asyncio.create_task(relay.run())
    async with asyncio.timeout(60):
        server[1].transport.abort()
        client[1].write(b"x")
        await running
        assert await client[0].read() == b""
    client[1].close()


async def test_a_relay_that_is_cancelled_closes_both_ends() -> None:
    relay = Relay()
    client, server = await far_end(relay.left), await far_end(relay.right)
    running = asyncio.create_task(relay.run())
    await asyncio.sleep(0)
    running.cancel()
    async with asyncio.timeout(60):
        assert await client[0].read() == await server[0].read() == b""
    await asyncio.gather(running, return_exceptions=True)
    for _, writer in (client, server):
        writer.close()


async def test_an_end_that_does_not_say_good_bye_is_cut(tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path)
    pair = authority.server("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.cert_file, pair.key_file)
    deaf: list[asyncio.StreamWriter] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        deaf.append(writer)  # since Python 3.13 a writer that is not referenced closes its connection

    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    relay = Relay(leave_seconds=0.1)
    port = server.sockets[0].getsockname()[1]
    trusting = ssl.create_default_context(cafile=str(authority.ca_file))
    loop = asyncio.get_running_loop()
    async with server, asyncio.timeout(15):  # asyncio itself would wait 30 s
        await loop.create_connection(lambda: relay.left, "127.0.0.1", port, ssl=trusting)
        _, client = await far_end(relay.right)
        running = asyncio.create_task(relay.run())
        client.close()
        await until(lambda: relay.left.transport is not None and relay.left.transport.is_closing())
        running.cancel()
        await until(lambda: relay.left.is_lost)
        for writer in deaf:  # since Python 3.12 the end of the server waits for its connections
            writer.transport.abort()
    await asyncio.gather(running, return_exceptions=True)
