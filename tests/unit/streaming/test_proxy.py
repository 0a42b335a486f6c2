import asyncio
import socket

from kubeletx.streaming.proxy import Copied, Pipe, splice


async def pair() -> tuple[Pipe, Pipe]:
    one, two = socket.socketpair()
    return Pipe(*await asyncio.open_connection(sock=one)), Pipe(*await asyncio.open_connection(sock=two))


async def test_bytes_go_both_ways_and_half_closes_are_passed_on() -> None:
    client, left = await pair()
    right, server = await pair()
    proxy = asyncio.create_task(splice(left, right))
    async with asyncio.timeout(60):
        client.writer.write(b"question")
        client.writer.write_eof()
        assert await server.reader.read() == b"question"
        server.writer.write(b"answer, after the question's end")
        server.writer.write_eof()
        assert await client.reader.read() == b"answer, after the question's end"
        assert await proxy == Copied(right=8, left=32)
    for pipe in (client, server):
        pipe.writer.close()


async def test_a_reader_that_is_slow_holds_the_writer_back() -> None:
    client, left = await pair()
    right, server = await pair()
    proxy = asyncio.create_task(splice(left, right))
    sent = 0
    try:
        async with asyncio.timeout(1):
            while sent < 64 << 20:
                client.writer.write(bytes(1 << 16))
                await client.writer.drain()
                sent += 1 << 16
    except TimeoutError:
        pass
    assert sent < 16 << 20
    proxy.cancel()
    await asyncio.gather(proxy, return_exceptions=True)
    for pipe in (client, server):
        pipe.writer.close()


async def test_an_end_that_breaks_ends_both_directions() -> None:
    client, left = await pair()
    right, server = await pair()
    proxy = asyncio.create_task(splice(left, right))
    async with asyncio.timeout(60):
        server.writer.transport.abort()
        client.writer.write(b"x")
        client.writer.write_eof()
        await proxy
    client.writer.close()
