"""exec, attach and port-forward: a real process in front of a fake agent, on pipes and on a terminal."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import socket
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from kubeletx.api import Channel, StreamRequest
from kubeletx.cli.commands.port_forward import Forward, parse_forward
from kubeletx.kube.types.core import Container, ObjectMeta, Pod, PodSpec, VirtualMachine
from kubeletx.testing.sessions import FakeSession
from kubeletx_testing.waiting import until

COMMAND = [sys.executable, "-c", "from kubeletx.cli.main import main; main()"]


def pod() -> Pod:
    return Pod(
        metadata=ObjectMeta(name="web", namespace="default", uid="u"),
        spec=PodSpec(containers=(Container(name="web", image="busybox"),)),
    )


@pytest.fixture
def session(agent: Any) -> FakeSession:
    """What the next exec, attach or port-forward gets."""
    agent.backend.put(pod())

    async def make() -> FakeSession:
        return FakeSession()

    made: FakeSession = agent.run(make)
    agent.backend.sessions.append(made)
    return made


def start(root: Path, *args: str, **popen: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*COMMAND, "--root-dir", str(root), *args], **popen)


def piped(root: Path, *args: str) -> subprocess.Popen[bytes]:
    return start(root, *args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_exec_passes_streams_and_exit_code_on(agent: Any, session: FakeSession) -> None:
    session.send(Channel.STDOUT, b"out\n")
    session.send(Channel.STDERR, b"err\n")
    session.finish(7)
    process = piped(agent.root, "exec", "web", "--", "ls", "-l")
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (7, b"out\n")
    assert err == b"err\ncommand terminated with exit code 7\n"
    wanted = StreamRequest(command=("ls", "-l"), stdin=False, stdout=True, stderr=True, tty=False)
    assert agent.backend.calls == [("exec", "default/web", "web", wanted)]


def test_exec_with_stdin_carries_it_to_its_end(agent: Any) -> None:
    agent.backend.put(pod())

    async def echo() -> FakeSession:
        return FakeSession(echo=True)

    agent.backend.sessions.append(agent.run(echo))
    data = os.urandom(300_000)
    process = piped(agent.root, "exec", "-i", "web", "--", "cat")
    out, err = process.communicate(data, timeout=30)
    assert (process.returncode, err) == (0, b"")
    assert out == data


def test_a_terminal_is_asked_for_only_where_there_is_one(agent: Any, session: FakeSession) -> None:
    session.finish(0)
    process = piped(agent.root, "attach", "-it", "web")
    _, err = process.communicate(b"", timeout=30)
    assert process.returncode == 0
    assert b"input is not a terminal" in err
    assert not agent.backend.calls[0][3].tty


def test_exec_in_an_unknown_pod_is_one_line(agent: Any) -> None:
    process = piped(agent.root, "exec", "none", "--", "ls")
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err) == (1, b"Error: pod default/none not found\n")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Both ends of a pseudo terminal, 40 rows of 100."""
    near, far = pty.openpty()
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    yield near, far
    os.close(near)
    os.close(far)


def read_until(descriptor: int, text: bytes) -> bytes:
    found = b""
    while text not in found:
        found += os.read(descriptor, 1024)
    return found


def test_a_terminal_is_raw_follows_its_size_and_is_set_back(
    agent: Any, session: FakeSession, terminal: tuple[int, int]
) -> None:
    near, far = terminal
    before = termios.tcgetattr(far)
    environment = {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS")}
    process = start(
        agent.root, "exec", "-it", "web", "--", "sh", stdin=far, stdout=far, stderr=far, env=environment
    )
    agent.soon(session.send, Channel.STDOUT, b"$ ")
    read_until(near, b"$ ")
    os.write(near, b"\x03")  # in raw mode Ctrl-C is a key like any other
    assert agent.run(session.read_stdin) == b"\x03"
    fcntl.ioctl(far, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 120, 0, 0))
    process.send_signal(__import__("signal").SIGWINCH)

    async def resized() -> None:
        async with asyncio.timeout(60):
            await until(lambda: (120, 50) in session.sizes)

    agent.run(resized)
    assert session.sizes[0] == (100, 40)
    agent.soon(session.finish, 3)
    assert process.wait(timeout=30) == 3
    assert termios.tcgetattr(far)[3] == before[3]
    assert agent.backend.calls[0][3].tty


def test_ctrl_and_bracket_leaves_the_console_of_a_machine(
    agent: Any, session: FakeSession, terminal: tuple[int, int]
) -> None:
    machine = Pod(
        metadata=ObjectMeta(name="vm", namespace="default", uid="v"),
        spec=PodSpec(virtual_machine=VirtualMachine(name="vm", image="disk")),
    )
    agent.backend.put(machine)
    near, far = terminal
    before = termios.tcgetattr(far)
    process = start(agent.root, "attach", "-it", "vm", stdin=far, stdout=far, stderr=far)
    agent.soon(session.send, Channel.STDOUT, b"login: ")
    assert b"Ctrl-] leaves" in read_until(near, b"login: ")
    os.write(near, b"ro\x1dnever sent")
    assert agent.run(session.read_stdin) == b"ro"
    assert process.wait(timeout=30) == 0
    assert termios.tcgetattr(far)[3] == before[3]


def test_a_port_is_forwarded_for_each_connection(agent: Any) -> None:
    agent.backend.put(pod())

    async def echo() -> FakeSession:
        return FakeSession(echo=True)

    agent.backend.sessions += [agent.run(echo), agent.run(echo)]
    process = piped(agent.root, "port-forward", "web", ":8080")
    assert process.stdout is not None
    try:
        line = process.stdout.readline().decode()
        assert line.startswith("Forwarding from 127.0.0.1:")
        assert line.endswith(" -> 8080\n")
        port = int(line.split(":")[1].split()[0])
        for data in (b"one", b"two"):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
                assert connection.makefile("rb").read() == data
    finally:
        process.terminate()
        process.communicate(timeout=30)
    assert agent.backend.calls == [("port-forward", "default/web", 8080)] * 2


@pytest.mark.parametrize(
    ("text", "expected"), [("8080:80", Forward(8080, 80)), ("80", Forward(80, 80)), (":80", Forward(0, 80))]
)
def test_ports(text: str, expected: Forward) -> None:
    assert parse_forward(text) == expected


@pytest.mark.parametrize("text", ["x", "80:", "80:0", "1:2:3", "70000", "-1:80"])
def test_what_is_not_a_port(text: str) -> None:
    with pytest.raises(click.UsageError):
        parse_forward(text)
