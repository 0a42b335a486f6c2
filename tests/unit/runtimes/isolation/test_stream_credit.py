"""A reader of a stream grants credit for several items at once, and always before the sender has none left."""

from __future__ import annotations

import asyncio
import socket

from kubeletx.runtimes.isolation.codec import MSGPACK
from kubeletx.runtimes.isolation.handshake import framed
from kubeletx.runtimes.isolation.peer import Peer
from kubeletx.runtimes.isolation.wire import WINDOW, Call, Credit, Frame, Item
from tests.unit.runtimes.isolation.test_peer_limits import Waiting

ITEM = MSGPACK.encode("an item")


async def receive(reader: asyncio.StreamReader) -> Frame:
    size = int.from_bytes(await reader.readexactly(4), "big")
    return MSGPACK.read_frame(await reader.readexactly(size))


async def test_the_sender_gets_credit_for_a_quarter_of_the_window_at_once() -> None:
    ours, theirs = socket.socketpair()
    peer = Peer("the child", *await asyncio.open_connection(sock=ours), Waiting())
    running = asyncio.create_task(peer.run())
    reader, writer = await asyncio.open_connection(sock=theirs)
    stream = peer.stream("runtime", "events", (), str)
    first = asyncio.create_task(anext(stream))
    async with asyncio.timeout(10):
        call = await receive(reader)
        assert isinstance(call, Call)
        writer.write(b"".join(framed(MSGPACK.write_frame(Item(call.id, ITEM))) for _ in range(WINDOW)))
        assert [await first, *[await anext(stream) for _ in range(WINDOW - 1)]] == ["an item"] * WINDOW
        next_item = asyncio.create_task(anext(stream))
        granted = [await receive(reader) for _ in range(4)]
        assert granted == [Credit(call.id, WINDOW // 4)] * 4
    next_item.cancel()
    await asyncio.gather(next_item, return_exceptions=True)
    await stream.aclose()
    writer.close()
    peer.close()
    await asyncio.gather(running, return_exceptions=True)
