"""The executable driver against sockets that answer in every way, without an agent."""

from __future__ import annotations

import json
import os
import posix
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kubeletx_flexvolume.driver import program

from kubeletx_testing.waiting import block_until

OK = b'{"status":"Success"}'
Serve = Callable[[socket.socket], None]


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(4, "big") + text


def received(connection: socket.socket) -> bytes:
    """Return the request of the driver."""
    size = int.from_bytes(connection.recv(4, socket.MSG_WAITALL), "big")
    return connection.recv(size, socket.MSG_WAITALL)


def answering(text: bytes) -> Serve:
    def serve(connection: socket.socket) -> None:
        received(connection)
        connection.sendall(text)

    return serve


@contextmanager
def served(path: Path, serve: Serve) -> Iterator[str]:
    """Serve one connection at `path` with `serve`."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def run() -> None:
            connection, _ = listening.accept()
            with connection:
                serve(connection)

        thread = threading.Thread(target=run, name="agent")
        thread.start()
        yield str(path)
        thread.join()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "agent.sock"


def installed(directory: Path) -> str:
    """Install the driver in `directory`, and return its path."""
    file = directory / "storage"
    file.write_bytes(Path(program.__file__).read_bytes())
    (directory / ".agent").mkdir()
    return str(file)


def test_the_answer_is_printed_as_it_is(path: Path) -> None:
    text = b'{"status":"Success","message":"\\u00fc"}'
    with served(path, answering(framed(text))) as name:
        assert program.ask(name, program.request("init", []), 10) == text


@pytest.mark.parametrize(
    ("status", "code"),
    [("Success", 0), ("Not supported", 0), ("Failure", 1), ("success", 1), ("Successful", 1)],
)
def test_the_exit_status_follows_the_status(tmp_path: Path, status: str, code: int) -> None:
    text = json.dumps({"status": status}, separators=(",", ":")).encode()
    driver = installed(tmp_path)
    with served(tmp_path / program.SOCKET, answering(framed(text))):
        assert program.main([driver, "unmount", "/t"]) == (text, code)


def test_the_request_has_versions_call_and_arguments(path: Path) -> None:
    requests = []

    def serve(connection: socket.socket) -> None:
        requests.append(json.loads(received(connection)))
        connection.sendall(framed(OK))

    words = ["/t", '{"a":"\N{SNOWMAN}\\"\0\udc80"}']
    with served(path, serve) as name:
        program.ask(name, program.request("mount", words), 10)
    assert requests == [{"protocol": 1, "driver": program.VERSION, "call": "mount", "arguments": words}]


def test_an_answer_that_comes_in_pieces_is_complete(path: Path) -> None:
    def serve(connection: socket.socket) -> None:
        received(connection)
        for byte in framed(OK):
            connection.sendall(bytes([byte]))

    with served(path, serve) as name:
        assert program.ask(name, program.request("init", []), 10) == OK


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "it closed the connection without an answer"),
        (b"\0\0", "it closed the connection without an answer"),
        (framed(OK)[:-1], "it closed the connection without an answer"),
        ((1 << 31).to_bytes(4, "big"), "its answer would have 2147483648 bytes"),
        (b"\0\0\0\0", "its answer would have 0 bytes"),
        (framed(b"[]"), "sent no status"),
        (framed(b'{"status": "Success"}'), "sent no status"),
        (framed(b'{"status":"Success"'), "sent no status"),
    ],
)
def test_a_broken_answer_is_a_failure_that_names_the_socket(path: Path, answer: bytes, problem: str) -> None:
    with (
        served(path, answering(answer)) as name,
        pytest.raises(program.CallFailed, match=problem) as caught,
    ):
        program.ask(name, program.request("init", []), 10)
    assert str(path) in str(caught.value)


def test_a_silent_agent_ends_the_call_at_its_deadline(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()  # the kernel accepts the connection, and no process reads it
        with pytest.raises(program.CallFailed, match=r"no answer within 0.05 s; see its log"):
            program.ask(str(path), program.request("init", []), 0.05)


@contextmanager
def full_queue(path: Path) -> Iterator[socket.socket]:
    """A listening socket that has no room for another connection."""
    with socket.socket(socket.AF_UNIX) as listening, socket.socket(socket.AF_UNIX) as first:
        listening.bind(str(path))
        listening.listen(0)
        first.connect(str(path))
        yield listening


def test_a_call_waits_while_the_queue_of_the_agent_is_full(path: Path) -> None:
    """A kubelet that starts calls drivers for all volumes at once. connect(2) fails with EAGAIN then."""
    results = []

    def call() -> None:
        try:
            results.append(program.ask(str(path), program.request("init", []), 20))
        except program.CallFailed as error:
            results.append(str(error).encode())

    with full_queue(path) as listening:
        thread = threading.Thread(target=call, name="driver")
        thread.start()
        listening.accept()[0].close()
        listening.settimeout(20)
        try:
            connection, _ = listening.accept()
            with connection:
                received(connection)
                connection.sendall(framed(OK))
        finally:
            thread.join()
    assert results == [OK]


def test_a_queue_that_stays_full_ends_the_call_at_its_deadline(path: Path) -> None:
    with full_queue(path), pytest.raises(program.CallFailed, match=r"does not answer at .*timed out"):
        program.ask(str(path), program.request("init", []), 0.05)


def test_a_missing_agent_is_named_with_its_socket(tmp_path: Path) -> None:
    driver = installed(tmp_path)
    text, code = program.main([driver, "init"])
    assert code == 1
    message = json.loads(text)["message"]
    assert f"the storage agent does not answer at {tmp_path}/.agent/agent.sock: No such file" in message
    assert "start 'kubeletx-flexvolume agent' on this node" in message


def test_the_socket_is_that_beside_the_real_file_also_at_a_long_path(tmp_path: Path) -> None:
    directory = tmp_path.joinpath(*("d" * 60,) * 4)
    directory.mkdir(parents=True)
    driver = Path(installed(directory))
    (tmp_path / "link").symlink_to(driver)
    assert program.socket_path(str(tmp_path / "link")) == f"{directory}/.agent/agent.sock"
    (directory / ".agent").rmdir()
    (tmp_path / ".agent").mkdir()
    with served(tmp_path / program.SOCKET, answering(framed(OK))):
        (tmp_path / ".agent").rename(directory / ".agent")
        assert program.main([str(driver), "init"]) == (OK, 0)


def test_a_missing_file_of_the_driver_is_named(tmp_path: Path) -> None:
    text, code = program.main([str(tmp_path / "gone"), "init"])
    assert code == 1
    assert "it cannot find its own file" in json.loads(text)["message"]


def test_arguments_that_are_too_long_are_not_sent() -> None:
    with pytest.raises(program.CallFailed, match=r"at most 524288 are sent"):
        program.request("mount", ["x" * program.MAX_REQUEST])


@pytest.mark.parametrize(
    "words", [["mount"], ["mount", "a"], ["unmount"], ["unmount", "a", "b"], ["init", "a"]]
)
def test_a_wrong_number_of_arguments_is_a_failure(words: list[str]) -> None:
    text, code = program.main(["storage", *words])
    assert code == 1
    assert "arguments" in json.loads(text)["message"]


@pytest.mark.parametrize("words", [[], ["attach", "{}"], ["getvolumename"], ["Init"], [""]])
def test_other_calls_are_not_supported(words: list[str]) -> None:
    assert program.main(["storage", *words]) == (b'{"status":"Not supported"}', 0)


def test_all_is_written_to_a_slow_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    written = []

    def write(descriptor: int, data: bytes) -> int:
        written.append((descriptor, data[:3]))
        return min(3, len(data))

    monkeypatch.setattr(posix, "write", write)  # the kernel writes a part only after a signal
    program.write(b"12345678")
    assert written == [(1, b"123"), (1, b"456"), (1, b"78")]


def test_no_descriptor_stays_open(path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    with served(path, answering(framed(OK))) as name:
        program.ask(name, program.request("init", []), 10)
    block_until(lambda: os.listdir("/proc/self/fd") == before)
