"""Live streams between this terminal and a container, through the admin socket.

If the session has a terminal, the local terminal is put into raw mode, so that every key goes to the container, and
changes of its size (SIGWINCH) are sent; the old mode is always restored. One loop polls the socket and standard input,
without asyncio and aiohttp: importing them takes longer than running a short command.
"""

from __future__ import annotations

import os
import selectors
import socket
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Final
from urllib.parse import urlencode

from kubeletx.api.errors import Unavailable
from kubeletx.api.streams import Channel
from kubeletx.streaming.channels import CLOSE_CHANNEL, WsProtocol, encode_resize
from kubeletx.streaming.status import exit_code_of

from .client import AgentClient

_UPGRADE: Final = (
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: a3ViZWxldHgga3ViZWxldA==",
    f"Sec-WebSocket-Protocol: {WsProtocol.V5.value}",
)
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
"""Kinds of frames (opcodes). Source: RFC 6455."""

_BLOCK = 32 * 1024
_MOST_UNSENT = 256 * 1024
"""Bytes that may wait for the socket before standard input is no longer read."""


def run_remote(
    agent: AgentClient,
    path: str,
    query: Sequence[tuple[str, str]],
    *,
    stdin: bool,
    terminal: bool = False,
    leave: bytes = b"",
    descriptors: tuple[int, int, int] = (0, 1, 2),
) -> int:
    """Connect this process's streams with a remote command until it ends; returns its exit code.

    `path`, `query`: of the request on the admin socket. `stdin`: send standard input. `terminal`: put the local
    terminal into raw mode and send its size. `leave`: key with which the user ends the session, which returns 0 while
    the command continues; empty: there is no such key. `descriptors`: the file descriptors to use as standard input,
    output and error. Raises Unavailable if no agent answers on the socket.
    """
    with ExitStack() as stack:
        connection = stack.enter_context(agent.upgrade(f"{path}?{urlencode(query)}", *_UPGRADE))
        streams = _Streams(connection, leave, descriptors, stdin)
        stack.enter_context(streams)
        if terminal:
            stack.enter_context(raw_terminal())
            stack.enter_context(streams.follow_size())
        return streams.run()


class _Streams:
    """One WebSocket on a connected socket, this process's standard streams, and what is not sent yet."""

    def __init__(
        self, connection: socket.socket, leave: bytes, descriptors: tuple[int, int, int], has_stdin: bool
    ) -> None:
        self._connection = connection
        self._in, self._out, self._err = descriptors
        self._leave = leave
        self._selector = selectors.PollSelector()  # epoll refuses regular files
        self._unsent = bytearray()
        self._received = bytearray()
        self._has_stdin = has_stdin
        self._message = b""
        self._exit_code: int | None = None

    def __enter__(self) -> None:
        self._connection.setblocking(False)
        self._selector.register(self._connection, selectors.EVENT_READ)

    def __exit__(self, *_: object) -> None:
        self._selector.close()

    @contextmanager
    def follow_size(self) -> Iterator[None]:
        """Context manager that sends the terminal's size at the start and after each SIGWINCH."""
        import signal  # here: a command without a terminal is quicker without it

        woken, waker = socket.socketpair()
        with woken, waker:
            waker.setblocking(False)
            self._selector.register(woken, selectors.EVENT_READ)
            self._send_size()
            before = signal.signal(signal.SIGWINCH, lambda *_: None)
            before_descriptor = signal.set_wakeup_fd(waker.fileno(), warn_on_full_buffer=False)
            try:
                yield
            finally:
                signal.set_wakeup_fd(before_descriptor)
                signal.signal(signal.SIGWINCH, before)

    def run(self) -> int:
        """Copy bytes in both directions until the remote command ends, or the user leaves; returns its exit code."""
        while self._exit_code is None:
            self._send()
            self._choose_inputs()
            for key, mask in self._selector.select():
                if key.fileobj is self._connection:
                    if mask & selectors.EVENT_READ:
                        self._receive()
                elif key.fileobj == self._in:
                    self._read_stdin()
                elif isinstance(key.fileobj, socket.socket):
                    key.fileobj.recv(_BLOCK)
                    self._send_size()
        self._connection.setblocking(True)
        with suppress(OSError):
            self._connection.sendall(self._unsent + _frame(_CLOSE, b""))
        return self._exit_code

    def _choose_inputs(self) -> None:
        """Poll for what can be handled now: for standard input, only while the socket keeps up."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
        self._selector.modify(self._connection, wanted)
        wants_stdin = self._has_stdin and len(self._unsent) < _MOST_UNSENT
        if wants_stdin and self._in not in self._selector.get_map():
            self._selector.register(self._in, selectors.EVENT_READ)
        elif not wants_stdin and self._in in self._selector.get_map():
            self._selector.unregister(self._in)

    def _queue(self, channel: int, data: bytes) -> None:
        self._unsent += _frame(_BINARY, bytes((channel,)) + data)

    def _send_size(self) -> None:
        size = os.get_terminal_size(self._in)
        self._queue(Channel.RESIZE, encode_resize(size.columns, size.lines))

    def _send(self) -> None:
        with suppress(BlockingIOError):
            while self._unsent:
                del self._unsent[: self._connection.send(self._unsent)]

    def _read_stdin(self) -> None:
        try:
            data = os.read(self._in, _BLOCK)
        except OSError:
            data = b""
        before, escape, _ = data.partition(self._leave) if self._leave else (data, b"", b"")
        if before:
            self._queue(Channel.STDIN, before)
        if escape:
            _write(self._out, b"\r\n")
            self._exit_code = 0
        elif not data:
            self._has_stdin = False
            self._queue(CLOSE_CHANNEL, bytes((Channel.STDIN,)))

    def _receive(self) -> None:
        try:
            data = self._connection.recv(_BLOCK)
        except BlockingIOError:
            return
        except OSError as err:
            raise Unavailable(f"the connection to the agent was lost: {err}") from err
        if not data:
            raise Unavailable("the connection to the agent was lost before the command's end")
        self._received += data
        for first, payload in self._frames():
            self._handle(first, payload)
            if self._exit_code is not None:
                return

    def _frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the first byte and the payload of each frame that has arrived completely."""
        while len(received := self._received) >= 2:
            start, size = 2, received[1]
            if size >= 126:
                start = 4 if size == 126 else 10
                size = int.from_bytes(received[2:start], "big")
            if len(received) < start + size:
                return
            first, payload = received[0], bytes(received[start : start + size])
            del received[: start + size]
            yield first, payload

    def _handle(self, first: int, payload: bytes) -> None:
        opcode, is_last = first & 0x0F, bool(first & 0x80)
        if opcode == _CLOSE:
            code = int.from_bytes(payload[:2], "big")
            raise Unavailable(f"the agent closed the connection before the command's end ({code})")
        if opcode == _PING:
            self._unsent += _frame(_PONG, payload)
        elif opcode != _PONG:  # the first or a later part of a message
            self._message += payload
            if is_last:
                message, self._message = self._message, b""
                self._show(message[0], message[1:])

    def _show(self, channel: int, data: bytes) -> None:
        if channel == Channel.ERROR:
            self._exit_code = exit_code_of(data)
        elif channel in (Channel.STDOUT, Channel.STDERR):
            _write(self._err if channel == Channel.STDERR else self._out, data)


def _frame(opcode: int, payload: bytes) -> bytes:
    """Encode a frame of less than 64 KiB. Its mask is zero: no proxy is between a command and its agent."""
    size = len(payload)
    length = bytes((0x80 | size,)) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
    return bytes((0x80 | opcode,)) + length + bytes(4) + payload


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def has_terminal() -> bool:
    """Return True if standard input is a terminal."""
    return sys.stdin is not None and sys.stdin.isatty()


@contextmanager
def raw_terminal() -> Iterator[None]:
    """Context manager that puts the terminal on standard input into raw mode, and restores the old mode."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    tty.setraw(descriptor)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
