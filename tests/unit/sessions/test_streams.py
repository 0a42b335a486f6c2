"""Queue of messages to one connection."""

from __future__ import annotations

import asyncio

from kubeletx.sessions.instance import OutgoingStream
from kubeletx.sessions.stubs import session_service_pb2 as pb


async def test_messages_come_in_order_with_numbers() -> None:
    stream = OutgoingStream()
    for _ in range(3):
        assert stream.send(pb.SessionMessage())
    assert [(await anext(stream)).messageIdentifier for _ in range(3)] == ["1", "2", "3"]


async def test_a_reader_waits_for_messages_and_for_the_end() -> None:
    stream = OutgoingStream()
    reader = asyncio.create_task(_read_all(stream), name="reader")
    await asyncio.sleep(0)
    stream.send(pb.SessionMessage())
    await asyncio.sleep(0)
    stream.end()
    assert await reader == ["1"]


async def test_a_full_queue_ends_the_stream_and_frees_its_messages() -> None:
    stream = OutgoingStream(limit=2)
    assert [stream.send(pb.SessionMessage()) for _ in range(3)] == [True, True, False]
    assert stream.is_ended
    assert await _read_all(stream) == []
    assert not stream.send(pb.SessionMessage())


async def _read_all(stream: OutgoingStream) -> list[str]:
    return [message.messageIdentifier async for message in stream]
