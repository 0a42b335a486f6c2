"""Live streams between this terminal and a container, through the admin socket.

If the session has a terminal, the local terminal is put into raw mode, so that every key goes to the container, and
changes of its size (SIGWINCH) are sent; the old mode is always restored. Standard input is read in a daemon thread: it
may be a file, a pipe or a terminal, and a blocked read must not delay the exit.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import aiohttp

from kubeletx.api import Channel, KubeletxError, Session, first_of
from kubeletx.streaming.websocket import WebSocketSession, connect_session

from .client import no_permission, not_running

_BLOCK = 32 * 1024


@contextmanager
def agent_session(socket_path: Path) -> Iterator[aiohttp.ClientSession]:
    """Context manager that yields an HTTP client of the admin socket; the caller closes it with `async with`.

    Raises Unavailable if the socket does not exist, PermissionDenied if this user may not open it.
    """
    if not socket_path.exists():
        raise not_running(socket_path)
    if not os.access(socket_path, os.W_OK):
        raise no_permission(socket_path)
    connector = aiohttp.UnixConnector(path=str(socket_path), limit=0)
    yield aiohttp.ClientSession(
        connector=connector, base_url="http://kubeletx", timeout=aiohttp.ClientTimeout()
    )


async def open_stream(
    client: aiohttp.ClientSession, socket_path: Path, path: str, query: Sequence[tuple[str, str]]
) -> WebSocketSession:
    """Open one session of exec, attach or port-forward (`path`, `query`) at the agent.

    Raises Unavailable if no agent answers on the socket.
    """
    try:
        return await connect_session(client, path, query)
    except KubeletxError as err:
        if isinstance(err.__cause__, aiohttp.ClientConnectorError):
            raise not_running(socket_path) from err
        raise


async def run_remote(
    socket_path: Path,
    path: str,
    query: Sequence[tuple[str, str]],
    *,
    stdin: bool,
    terminal: bool,
    leave: bytes = b"",
) -> int:
    """Connect this process's streams with a remote command until it ends; returns its exit code.

    `path`, `query`: of the request on the admin socket. `stdin`: send standard input. `terminal`: put the local
    terminal into raw mode and send its size. `leave`: key with which the user ends the session, which returns 0 while
    the command continues; empty: there is no such key.
    """
    with agent_session(socket_path) as made:
        async with made as client:
            session = await open_stream(client, socket_path, path, query)
            try:
                with raw_terminal() if terminal else _nothing():
                    return await pump(session, stdin=stdin, terminal=terminal, leave=leave)
            finally:
                await session.close()


async def pump(session: Session, *, stdin: bool, terminal: bool, leave: bytes = b"") -> int:
    """Copy bytes between this process and the session until the remote command ends; returns its exit code.

    `stdin`: send standard input. `terminal`: send the size of the local terminal, and its changes. `leave`: key that
    makes this function return 0 immediately; empty: there is no such key.
    """
    loop = asyncio.get_running_loop()
    left = asyncio.Event()
    helpers: list[asyncio.Task[object]] = []
    if stdin:
        helpers.append(asyncio.create_task(_feed(session, leave, left), name="stdin"))
    if terminal:
        resized = asyncio.Event()
        resized.set()
        loop.add_signal_handler(signal.SIGWINCH, resized.set)
        helpers.append(asyncio.create_task(_follow_size(session, resized), name="terminal-size"))
    try:
        output, _ = await first_of("output", _show(session), left.wait())
        if output is not None:
            exit_code: int = output.result()
            return exit_code
        _write(1, b"\r\n")
        return 0
    finally:
        if terminal:
            loop.remove_signal_handler(signal.SIGWINCH)
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)


async def _show(session: Session) -> int:
    async for channel, data in session.output():
        _write(2 if channel is Channel.STDERR else 1, data)
    return await session.wait()


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


async def _feed(session: Session, leave: bytes, left: asyncio.Event) -> None:
    """Send standard input to the session; at its end, close the session's stdin.

    If the key `leave` is typed, sends the input before it, sets the event `left`, and returns.
    """
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[bytes] = asyncio.Queue()
    room = threading.Semaphore(8)

    def read() -> None:
        while True:
            room.acquire()
            try:
                data = os.read(0, _BLOCK)
            except OSError:
                data = b""
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(queue.put_nowait, data)
            if not data:
                return

    threading.Thread(target=read, name="stdin", daemon=True).start()
    with suppress(KubeletxError):  # the remote command stopped reading
        while data := await queue.get():
            before, escape, _ = data.partition(leave) if leave else (data, b"", b"")
            if before:
                await session.write(before)
            if escape:
                left.set()
                return
            room.release()
        await session.close_stdin()


async def _follow_size(session: Session, resized: asyncio.Event) -> None:
    while True:
        await resized.wait()
        resized.clear()
        size = shutil.get_terminal_size()
        with suppress(KubeletxError):  # the session has ended
            await session.resize(size.columns, size.lines)


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


@contextmanager
def _nothing() -> Iterator[None]:
    yield
