"""A child that breaks the rules of the wire format loses the connection; the agent neither hangs nor fills its memory."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from kubeletx.api import Internal, Unavailable
from kubeletx.runtimes.isolation.codec import CODECS, MSGPACK, Codec, Encoded
from kubeletx.runtimes.isolation.handshake import framed
from kubeletx.runtimes.isolation.peer import Emit, Peer
from kubeletx.runtimes.isolation.wire import (
    LARGEST_FRAME,
    MOST_CALLS,
    WINDOW,
    Answer,
    Call,
    Credit,
    Frame,
    Item,
)
from kubeletx_testing.waiting import let_others_work


class Waiting:
    """Serves every call by waiting until it is cancelled."""

    async def serve(self, target: str, method: str, args: Encoded, emit: Emit) -> Any:
        await asyncio.Event().wait()

    def note(self, target: str, method: str, args: Encoded) -> None:
        return None


@pytest.fixture
def codec() -> Codec:
    return MSGPACK


@pytest.fixture
def largest_frame() -> int:
    return LARGEST_FRAME


@pytest.fixture
def earlier() -> int:
    return 1


@pytest.fixture
async def ends(
    codec: Codec, largest_frame: int, earlier: int
) -> AsyncIterator[tuple[Peer, asyncio.StreamWriter]]:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    _, other = await asyncio.open_connection(sock=theirs)
    peer = Peer(
        "the process of runtime a",
        reader,
        writer,
        Waiting(),
        codec=codec,
        largest_frame=largest_frame,
        first_call=earlier,
    )
    task = asyncio.create_task(peer.run())
    yield peer, other
    other.close()
    peer.close()
    await asyncio.gather(task, return_exceptions=True)


def frames(*sent: Frame) -> bytes:
    return b"".join(framed(MSGPACK.write_frame(frame)) for frame in sent)


NULL = MSGPACK.encode(None)


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (frames(Call(1, "x", "y", NULL), Credit(1, 10**15)), "credit for 1000000000000000 items"),
        (
            frames(*(Item(1, NULL) for _ in range(WINDOW + 2))),
            "more items than the window of 32 unread items",
        ),
        (frames(*(Call(n, "x", "y", NULL) for n in range(MOST_CALLS + 1))), "limit of 1000 concurrent calls"),
        (frames(Call(1, "x", "y", NULL), Call(1, "x", "y", NULL)), "call 1 .* its number is in use"),
        (b"\xff\xff\xff\xffgarbage", "a frame of 4294967295 bytes"),
        (b"\x04\x00\x00\x01" + b"x" * 64, "a frame of 67108865 bytes; at most 67108864 are read"),
        (framed(b"\xc1 not msgpack"), "it broke the protocol"),
        (framed(b"\x91\xa5other"), "it broke the protocol"),
    ],
)
async def test_a_broken_rule_ends_the_connection_with_words(
    ends: tuple[Peer, asyncio.StreamWriter], sent: bytes, words: str
) -> None:
    peer, other = ends
    call = asyncio.create_task(peer.call("runtime", "health", (), None))
    await let_others_work()
    other.write(sent)
    with pytest.raises(Unavailable, match=f"the process of runtime a: .*{words}"):
        async with asyncio.timeout(60):
            await call
    assert peer.is_closed


@pytest.mark.parametrize("codec", CODECS.values(), ids=CODECS)
@pytest.mark.parametrize("earlier", [0, 200])
@pytest.mark.parametrize("largest_frame", [1000])
async def test_an_answer_that_is_too_large_fails_its_call_alone_and_names_it(
    ends: tuple[Peer, asyncio.StreamWriter], codec: Codec, earlier: int
) -> None:
    peer, other = ends
    large, small = (asyncio.create_task(peer.call("runtime", one, (), str)) for one in ("version", "health"))
    await let_others_work()
    for number, text in ((earlier, "x" * 200_000), (earlier + 1, "fine")):
        other.write(framed(codec.write_frame(Answer(number, codec.encode(text)))))
    async with asyncio.timeout(60):
        with pytest.raises(
            Internal, match=r"the process of runtime a: version returned 2000.. bytes; at most"
        ):
            await large
        assert await small == "fine"


@pytest.mark.parametrize("largest_frame", [1000])
async def test_an_item_that_is_too_large_ends_its_stream(ends: tuple[Peer, asyncio.StreamWriter]) -> None:
    peer, other = ends
    stream = peer.stream("runtime", "events", (), str)
    first = asyncio.ensure_future(anext(stream))
    await let_others_work()
    other.write(frames(Item(1, MSGPACK.encode("x" * 2000))))
    with pytest.raises(Internal, match=r"events returned 20.. bytes"):
        async with asyncio.timeout(60):
            await first
    assert not peer.is_closed
