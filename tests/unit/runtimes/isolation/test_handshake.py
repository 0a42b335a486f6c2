"""The handshake with a child process, and programs that do not follow it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest

from kubeletx.api import Internal, KubeletxError, Unavailable, Unsupported
from kubeletx.runtimes.isolation import IsolatedRuntime
from kubeletx.runtimes.isolation.codec import JSON, MSGPACK
from kubeletx.runtimes.isolation.handshake import Agreement, Hello, HelloReply, agreed, handshake, reply_to
from kubeletx.testing import FakeHost, endpoint


def program(tmp_path: Path, script: str) -> IsolatedRuntime:
    command = ("/bin/sh", "-c", script)
    return IsolatedRuntime(None, endpoint("exec:///bin/sh"), None, FakeHost(tmp_path), program=command)


def test_a_python_child_chooses_the_agents_first_encoding() -> None:
    reply = reply_to(msgspec.json.encode(Hello()))
    assert agreed("x", reply) == Agreement(codec=MSGPACK, features=("cancel", "trace"))
    reply = reply_to(msgspec.json.encode(Hello(encodings=("xml", "json"), features=())))
    assert agreed("x", reply) == Agreement(codec=JSON, features=())


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (b'{"versions": [2, 3]}', "it has version 1 of the wire format; the agent offered 2, 3"),
        (b'{"encodings": ["xml"]}', "it has the encodings msgpack, json"),
        (b"[1]", "the first message is not a hello"),
        (b"\xff", "the first message is not a hello"),
    ],
)
def test_a_python_child_refuses_other_formats_in_words(hello: bytes, words: str) -> None:
    reply = reply_to(hello)
    assert words in reply.refused
    with pytest.raises(Unsupported, match="the process refused the handshake: "):
        agreed("the process", reply)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (
            HelloReply(version=2, encoding="json"),
            "chose version 2 of the wire format; this agent has version 1",
        ),
        (HelloReply(version=1, encoding="xml"), "chose encoding 'xml'; this agent has: msgpack, json"),
    ],
)
def test_the_agent_refuses_a_choice_that_it_did_not_offer(reply: HelloReply, words: str) -> None:
    with pytest.raises(Unsupported, match=words):
        agreed("x", reply)


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ("exit 3", Unavailable, "ended before it answered the handshake"),
        (
            "echo 'usage: plugin [OPTIONS]'; exec sleep 100",
            Internal,
            "did not answer the handshake .*nothing else may write",
        ),
        (r"printf '\0\0\0\2xx'; exec sleep 100", Internal, "did not answer the handshake"),
    ],
)
async def test_a_program_without_a_handshake_is_named_and_not_started_again_at_once(
    tmp_path: Path, script: str, error: type[KubeletxError], words: str
) -> None:
    runtime = program(tmp_path, f"echo x >> {tmp_path}/starts; {script}")
    with pytest.raises(error, match=f"the process of runtime under-test {words}"):
        await runtime.open()
    for _ in range(5):
        with pytest.raises(Unavailable, match="started again in"):
            await runtime.open()
    assert (tmp_path / "starts").read_text() == "x\n"
    assert runtime.pid is None
    await runtime.close()


async def test_a_process_that_sends_nothing_is_named() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    with theirs, pytest.raises(Unavailable, match=r"x sent no answer to the handshake within 0\.01 s"):
        await handshake("x", reader, writer, seconds=0.01)
    writer.close()
    await writer.wait_closed()


async def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    missing = IsolatedRuntime(
        None, endpoint("exec:///no"), None, FakeHost(tmp_path), program=("/no/such/program",)
    )
    with pytest.raises(Unavailable, match="cannot start /no/such/program: No such file or directory"):
        await missing.open()
    await missing.close()
