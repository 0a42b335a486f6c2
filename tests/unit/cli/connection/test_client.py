"""The client of the admin socket with answers that are whole, cut off, or none of HTTP."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import Internal, TimedOut, Unavailable
from kubeletx.cli.connection.client import AgentClient

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def answering(tmp_path: Path) -> Iterator[Callable[[bytes | None], AgentClient]]:
    """Return a client of a server that gives one answer; None: it never answers."""
    over = threading.Event()
    threads = []

    def start(answer: bytes | None) -> AgentClient:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(tmp_path / "socket"))
        listener.listen()

        def serve() -> None:
            with listener, listener.accept()[0] as connection:
                connection.recv(65536)
                if answer is None:
                    over.wait()
                else:
                    connection.sendall(answer)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()
        return AgentClient(tmp_path / "socket")

    yield start
    over.set()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize(
    "answer",
    [OK + b"Content-Length: 7\r\n\r\n" + b'{"a":1}', CHUNKED + b'3\r\n{"a\r\n4\r\n":1}\r\n0\r\n\r\n'],
)
def test_answers_of_known_length_and_in_chunks(answering: Any, answer: bytes) -> None:
    assert answering(answer).get("/", dict[str, int]) == {"a": 1}


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        (b"", Unavailable, "was lost: it ended before the answer"),
        (b"garbage\r\n\r\n", Unavailable, "'' is no part of an HTTP answer"),
        (OK + b"Content-Length: 7\r\n\r\n{}", Unavailable, "ended before the answer's end"),
        (CHUNKED + b"5\r\nab", Unavailable, "ended before the answer's end"),
        (CHUNKED + b"zz\r\n", Unavailable, "'zz' is no part of an HTTP answer"),
        (OK + b"Content-Length: 1\r\n\r\n{", Internal, "invalid answer to /"),
        (b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 4\r\n\r\naway", Internal, "answered 502: away"),
        (b"HTTP/1.1 404 Not Found\r\n\r\n", Internal, "answered 404: Not Found"),
    ],
)
def test_a_bad_answer_is_an_error_that_says_so(
    answering: Any, answer: bytes, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        answering(answer).get("/", dict[str, int])


def test_pieces_arrive_before_the_connection_is_lost(answering: Any) -> None:
    pieces = answering(CHUNKED + b"3\r\nabc\r\n5\r\nde").chunks("/", {})
    assert next(pieces) == b"abc"
    with pytest.raises(Unavailable):
        list(pieces)


def test_an_agent_that_does_not_answer_in_time(answering: Any) -> None:
    with pytest.raises(TimedOut, match=r"did not answer within 0\.01s"):
        answering(None).call("GET", "/", dict[str, int], timeout=0.01)
