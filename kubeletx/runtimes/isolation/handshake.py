"""Handshake between agent and child process: version, encoding and features of the wire format.

The agent sends one `Hello`, the child answers with one `HelloReply`, both as JSON; see docs/plugin-wire.md. Afterwards
both send frames in the encoding that the child chose.
"""

from __future__ import annotations

import asyncio
from typing import Final

import msgspec

from kubeletx.api import Internal, Unavailable, Unsupported

from .codec import CODECS, Codec

PROTOCOL: Final = "kubeletx-plugin"
VERSION: Final = 1
"""Version of the wire format. A change that an older program would not understand increases it."""
CANCEL: Final = "cancel"
"""Feature: the child reads cancel frames. Without it, the agent sends none."""
TRACE: Final = "trace"
"""Feature: the child reads calls with a traceparent."""
HELLO_SECONDS: Final = 30.0
LARGEST_HELLO: Final = 64 * 1024


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """First message of the agent.

    `versions`, `encodings`: what the agent can use, the preferred one first. `features`: what it supports.
    """

    protocol: str = PROTOCOL
    versions: tuple[int, ...] = (VERSION,)
    encodings: tuple[str, ...] = tuple(CODECS)
    features: tuple[str, ...] = (CANCEL, TRACE)


class HelloReply(msgspec.Struct, frozen=True, kw_only=True):
    """First message of the child: what it chose of the agent's `Hello`.

    `features`: what both support. `refused`: why the child cannot work with this agent, in words; then the other
    fields have no meaning. Empty: it can.
    """

    version: int = 0
    encoding: str = ""
    features: tuple[str, ...] = ()
    refused: str = ""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the handshake. `features`: what both support."""

    codec: Codec
    features: tuple[str, ...]


async def handshake(
    name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seconds: float = HELLO_SECONDS
) -> Agreement:
    """Do the agent's part of the handshake.

    `name`: description of the child, for messages. Raises Unsupported if the two cannot work together, Internal if the
    child does not follow the format, and Unavailable if it ends or sends nothing for `seconds`.
    """
    writer.write(framed(msgspec.json.encode(Hello())))
    try:
        async with asyncio.timeout(seconds):
            reply = msgspec.json.decode(await read_hello(reader), type=HelloReply)
    except TimeoutError:
        raise Unavailable(f"{name} sent no answer to the handshake within {seconds:g} s") from None
    except (asyncio.IncompleteReadError, OSError) as error:
        raise Unavailable(f"{name} ended before it answered the handshake; see its messages above") from error
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise Internal(
            f"{name} did not answer the handshake as docs/plugin-wire.md describes: {error}; nothing else may write "
            "to its standard output or socket"
        ) from error
    return agreed(name, reply)


def agreed(name: str, reply: HelloReply) -> Agreement:
    """Return what `reply` chose. Raises Unsupported if the child refused, or chose what the agent did not offer."""
    if reply.refused:
        raise Unsupported(f"{name} refused the handshake: {reply.refused}")
    if reply.version != VERSION:
        raise Unsupported(
            f"{name} chose version {reply.version} of the wire format; this agent has version {VERSION}: install a "
            "program for that version"
        )
    if reply.encoding not in CODECS:
        raise Unsupported(f"{name} chose encoding {reply.encoding!r}; this agent has: {', '.join(CODECS)}")
    return Agreement(codec=CODECS[reply.encoding], features=reply.features)


def reply_to(data: bytes) -> HelloReply:
    """Return the reply of a child in Python to the agent's first message."""
    try:
        hello = msgspec.json.decode(data, type=Hello)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return HelloReply(refused=f"the first message is not a hello: {error}")
    if VERSION not in hello.versions:
        offered = ", ".join(map(str, hello.versions)) or "none"
        return HelloReply(refused=f"it has version {VERSION} of the wire format; the agent offered {offered}")
    encoding = next((name for name in hello.encodings if name in CODECS), "")
    if not encoding:
        return HelloReply(refused=f"it has the encodings {', '.join(CODECS)}; the agent offered none of them")
    features = tuple(feature for feature in hello.features if feature in (CANCEL, TRACE))
    return HelloReply(version=VERSION, encoding=encoding, features=features)


async def read_hello(reader: asyncio.StreamReader) -> bytes:
    """Read one message of the handshake. Raises ValueError if it is longer than `LARGEST_HELLO`."""
    size = int.from_bytes(await reader.readexactly(4), "big")
    if size > LARGEST_HELLO:
        raise ValueError(f"a first message of {size} bytes")
    return await reader.readexactly(size)


def framed(data: bytes) -> bytes:
    """Return `data` with its length before it, as every message is sent."""
    return len(data).to_bytes(4, "big") + data
