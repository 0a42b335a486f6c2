"""What a child prints is in the agent's log with its owner, within a rate; its texts are cut."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import pytest
from structlog.testing import capture_logs

from kubeletx.api import Internal, KubeletxError, NotFound
from kubeletx.runtimes.isolation.codec import Encoded
from kubeletx.runtimes.isolation.peer import Emit, Peer
from kubeletx.runtimes.isolation.process import BURST_BYTES, BYTES_PER_SECOND, ChildOutput
from kubeletx.runtimes.isolation.wire import Failure, error_of, failure_of
from kubeletx.runtimes.plugins.failures import LONGEST_TEXT, limited, words_of


def test_each_line_is_a_log_line_with_the_owner() -> None:
    output = ChildOutput("runtime edge", lambda: 0.0)
    with capture_logs() as lines:
        output.data_received(b"one\ntw")
        output.data_received(b"o\n\nlast \xff")
        output.connection_lost(None)
    assert [(one["owner"], one["text"]) for one in lines] == [
        ("runtime edge", "one"),
        ("runtime edge", "two"),
        ("runtime edge", "last \\xff"),
    ]


def test_output_beyond_the_rate_is_left_out_and_counted() -> None:
    now = 0.0
    output = ChildOutput("runtime edge", lambda: now)
    line = b"x" * 1023 + b"\n"
    with capture_logs() as lines:
        for _ in range(10_000):
            output.data_received(line)
        assert len(lines) == BURST_BYTES // 1024
        now = 60.0
        output.data_received(line)
        output.connection_lost(None)
    assert [one["bytes"] for one in lines if "bytes" in one] == [10_000 * 1024 - BURST_BYTES]
    assert len(lines) <= BURST_BYTES // 1024 + 60 * BYTES_PER_SECOND // 1024


def test_a_line_without_end_is_cut() -> None:
    output = ChildOutput("runtime edge", lambda: 0.0)
    with capture_logs() as lines:
        output.data_received(b"x" * 3 * LONGEST_TEXT)
        output.connection_lost(None)
    assert [len(one["text"]) for one in lines] == [LONGEST_TEXT]


class Mute(KubeletxError):
    def __str__(self) -> str:
        raise SystemExit


def test_errors_are_cut_in_both_processes() -> None:
    error = NotFound("x" * 100_000)
    error.detail = b"y" * 100_000  # type: ignore[attr-defined]
    for sent in (failure_of(1, error), Failure(1, ("kubeletx.api.errors:NotFound",), dict(vars(error)))):
        found = error_of(sent)
        assert isinstance(found, NotFound)
        assert len(str(found)) < LONGEST_TEXT + 50
        assert str(found).endswith("characters left out)")
    assert len(failure_of(1, error).state["detail"]) == LONGEST_TEXT


def test_errors_are_cut_without_isolation() -> None:
    assert len(str(limited(NotFound("x" * 100_000)))) < LONGEST_TEXT + 50
    assert len(words_of(ValueError("x" * 100_000))) < LONGEST_TEXT + 70
    assert isinstance(limited(Mute("x")), Internal)
    short = NotFound("gone")
    assert limited(short) is short


class MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError


class Troubled:
    """Serves calls by what cannot be sent as it is."""

    async def serve(self, target: str, method: str, args: Encoded, emit: Emit) -> Any:
        if method == "raises":
            raise MuteError
        if method == "returns":
            return object()
        error = Internal("x")
        error.reason = "\ud800"  # UTF-8 cannot encode it
        raise error

    def note(self, target: str, method: str, args: Encoded) -> None: ...


@pytest.mark.parametrize(
    ("method", "words"), [("raises", "raises: MuteError"), ("returns", "object"), ("other", "x")]
)
async def test_what_cannot_be_sent_is_answered_at_once(method: str, words: str) -> None:
    ends = [await asyncio.open_connection(sock=one) for one in socket.socketpair()]
    peers = [Peer("the other process", *end, Troubled()) for end in ends]
    async with asyncio.TaskGroup() as group:
        for peer in peers:
            group.create_task(peer.run())
        with pytest.raises(Internal, match=words):
            async with asyncio.timeout(30):
                await peers[0].call("x", method, (), None)
        for peer in peers:
            peer.close()
