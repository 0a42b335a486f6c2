"""The agent's socket: who may connect, what a connection may do, and that none disturbs another."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kubeletx_flexvolume.agent.server import AgentServer
from kubeletx_flexvolume.agent.sockets import find_agent, open_socket
from kubeletx_flexvolume.agent.wire import SOCKET, SUCCESS, DriverRequest, framed, parse_request, reply
from kubeletx_flexvolume.driver.program import MAX_REQUEST, PROTOCOL

from kubeletx.api import Conflict, KubeletxError
from kubeletx_testing.waiting import until

GOOD = {"protocol": PROTOCOL, "driver": "0.1.0", "call": "mount", "arguments": ["/t", "{}"]}


class Served:
    """A server whose calls wait for `gate`."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.requests: list[tuple[DriverRequest, str]] = []
        self.cancelled = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.server = AgentServer(self._answer, request_seconds=0.3, max_connections=20)

    async def _answer(self, request: DriverRequest, name: str) -> bytes:
        self.requests.append((request, name))
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if request.call == "bug":
            raise ValueError("secret hunter2")
        return reply(SUCCESS, call=request.call)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_unix_connection(str(self.directory / SOCKET))

    async def send(self, data: bytes, *, end: bool = False) -> dict[str, Any] | None:
        """Send bytes, and return the answer; None if the connection was closed without one."""
        reader, writer = await self.connect()
        try:
            writer.write(data)
            if end:
                writer.write_eof()
            text = await asyncio.wait_for(reader.read(), 10)
        except ConnectionError:
            return None
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        if not text:
            return None
        assert int.from_bytes(text[:4], "big") == len(text) - 4
        answer: dict[str, Any] = json.loads(text[4:])
        return answer

    async def call(self, **changes: Any) -> dict[str, Any] | None:
        return await self.send(framed(json.dumps({**GOOD, **changes}).encode()))


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    one = Served(tmp_path / "agent")
    await one.server.listen(one.directory, "a place")
    yield one
    await one.server.close()
    assert not (one.directory / SOCKET).exists()


async def test_a_call_is_answered_and_carries_the_name_of_the_socket(served: Served) -> None:
    assert await served.call() == {"status": "Success", "call": "mount"}
    ((request, name),) = served.requests
    assert (request.call, request.arguments, name) == ("mount", ("/t", "{}"), "a place")


async def test_the_socket_is_private(served: Served) -> None:
    assert stat.S_IMODE(served.directory.stat().st_mode) == 0o700
    assert stat.S_IMODE((served.directory / SOCKET).stat().st_mode) == 0o600


async def test_other_users_are_refused(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    # As the kernel reports another user, who cannot reach this private socket.
    monkeypatch.setattr("kubeletx_flexvolume.agent.server.peer_of", lambda _: (7, 65534))
    assert await served.call() == {"status": "Failure", "message": "only root may call the storage agent"}
    assert served.requests == []


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\0",
        b"\0\0\0\1x",
        b"\xff\xff\xff\xff" + b"x" * 100,
        (MAX_REQUEST + 1).to_bytes(4, "big"),
        framed(b"not json"),
        framed(b'"text"'),
        framed(b"[]"),
        framed(b"{}"),
        framed(b'{"protocol":"1"}'),
        framed(b'{"protocol":1,"driver":"x","call":"init","arguments":[1]}'),
        framed(b'{"protocol":1,"driver":"x","call":"init","arguments":["\\ud800"]}'),
        framed(b"\xff\xfe"),
        framed(b"[" * 5000),
    ],
)
async def test_a_malformed_message_is_refused_and_the_next_call_works(served: Served, data: bytes) -> None:
    answer = await served.send(data)
    assert answer is not None
    assert answer["status"] == "Failure"
    assert await served.call() == {"status": "Success", "call": "mount"}


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200))
async def test_any_bytes_are_survived(served: Served, data: bytes) -> None:
    answer = await served.send(data, end=True)
    assert answer is None or answer["status"] == "Failure"
    assert await served.call() is not None


async def test_another_version_of_the_protocol_is_named(served: Served) -> None:
    answer = await served.call(protocol=2)
    assert answer is not None
    assert "it has version 2, and the agent 1" in answer["message"]


async def test_slow_clients_delay_no_other(served: Served) -> None:
    slow = [await served.connect() for _ in range(10)]
    slow[0][1].write(b"\0\0")
    slow[1][1].write(framed(b"{}")[:5])
    assert await served.call() == {"status": "Success", "call": "mount"}
    for reader, writer in slow:
        assert b"no complete message came within 0.3 s" in await reader.read()
        writer.close()
        await writer.wait_closed()


async def test_connections_above_the_limit_are_refused_and_the_others_continue(served: Served) -> None:
    served.gate.clear()
    calls = [asyncio.create_task(served.call(), name="call") for _ in range(20)]
    await until(lambda: len(served.requests) == 20)
    answer = await served.call()
    assert answer is not None
    assert "serves 20 calls already" in answer["message"]
    served.gate.set()
    assert await asyncio.gather(*calls) == [{"status": "Success", "call": "mount"}] * 20


async def test_a_client_that_disconnects_ends_the_waiting(served: Served) -> None:
    served.gate.clear()
    _, writer = await served.connect()
    writer.write(framed(json.dumps(GOOD).encode()))
    await until(lambda: served.requests)
    writer.close()
    await writer.wait_closed()
    await until(lambda: served.cancelled)


async def test_a_bug_closes_the_connection_and_shows_nothing(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await served.call(call="bug") is None
    assert await served.call() is not None


async def test_a_second_agent_is_refused_with_the_pid_of_the_first(served: Served) -> None:
    with pytest.raises(Conflict, match=f"another storage agent, PID {os.getpid()}, serves"):
        open_socket(served.directory)
    assert find_agent(served.directory) == os.getpid()
    assert await served.call() is not None  # after the connections of the two looks


async def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    directory = tmp_path / "agent"
    directory.mkdir(mode=0o755)
    stale = socket.socket(socket.AF_UNIX)
    stale.bind(str(directory / SOCKET))
    stale.close()
    assert find_agent(directory) is None
    one = open_socket(directory)
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    one.close()
    assert find_agent(directory) is None
    assert find_agent(tmp_path / "missing") is None


def test_an_agent_whose_queue_is_full_is_an_agent(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(tmp_path / SOCKET))
        listening.listen(0)
        first.connect(str(tmp_path / SOCKET))
        assert find_agent(tmp_path) == 0
        with pytest.raises(Conflict, match="another storage agent, a process that is not visible here"):
            open_socket(tmp_path)


async def test_a_socket_may_have_a_long_path(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120) / "agent"
    one = open_socket(directory)
    assert (directory / SOCKET).is_socket()
    assert find_agent(directory) == os.getpid()
    one.close()


async def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "agent").symlink_to("real")
    with pytest.raises(OSError, match=r"Not a directory|symbolic links"):
        open_socket(tmp_path / "agent")


@given(st.binary(max_size=300))
def test_any_message_is_a_request_or_an_error(data: bytes) -> None:
    try:
        request = parse_request(data)
    except KubeletxError:
        return
    assert request.protocol == PROTOCOL


def test_a_request_does_not_show_its_arguments() -> None:
    request = parse_request(json.dumps({**GOOD, "arguments": ["/t", "hunter2"]}).encode())
    assert "hunter2" not in repr(request)


def test_a_long_message_is_cut_and_a_long_reply_replaced() -> None:
    assert len(reply("Failure", "x" * 100_000)) < 5000
    assert b"at most" in framed(reply("Success", text="x" * 100_000))
    assert reply("Failure", "ä\n").isascii()
