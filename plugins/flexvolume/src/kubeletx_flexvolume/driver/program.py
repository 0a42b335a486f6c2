#!/usr/bin/python3 -IS
"""FlexVolume driver kubeletx.io/storage: passes each call to the storage agent of this node, and prints its answer.

    kubelet ─ argv ─► this program ─ .agent/agent.sock ─► kubeletx-flexvolume agent
            ◄─ JSON ─               ◄──────────────────

The agent installs this file into the kubelet's plugin directory. It runs with any Python from 3.7 that is at
/usr/bin/python3, and uses only the standard library. Each call of the kubelet starts a process, so the file imports
only modules that are written in C; `json` and `socket` alone take longer than the rest of the program.

A message is a 4-byte length (big endian) and a JSON object. The agent's answer begins with the member ``status``, and
is printed as it is. Options, and with them secrets, go through the socket only.
"""

from __future__ import annotations

import _socket
import errno
import posix
import sys
import time

VERSION = "0.1.0"
"""Version of this driver. The agent that installs the file has the same."""
PROTOCOL = 1
"""Version of the messages. Driver and agent refuse each other if it differs."""
SOCKET = ".agent/agent.sock"
"""Path of the agent's socket, relative to the directory of this file."""

CALLS = {"init": 0, "mount": 2, "unmount": 1}
"""Supported calls, with the number of their arguments."""
INIT_SECONDS = 10.0
CALL_SECONDS = 160.0
"""Deadline of mount and unmount. The agent's own deadlines are shorter, so it answers before."""
FIRST_PAUSE_SECONDS = 0.002
LAST_PAUSE_SECONDS = 0.1
"""Pauses before another connection while the agent's queue is full, as after the start of a kubelet with many pods."""
MAX_REQUEST = 512 * 1024
MAX_REPLY = 64 * 1024

SUCCESS = b'{"status":"Success"'
FAILURE = b'{"status":"Failure"'
NOT_SUPPORTED = b'{"status":"Not supported"'


class CallFailed(Exception):
    """A call that has failed. Its text is the message for the kubelet."""


def main(argv: list[str]) -> tuple[bytes, int]:
    """Run one call; `argv` as in sys.argv. Return the text to print, and the exit status."""
    call = argv[1] if len(argv) > 1 else ""
    if call not in CALLS:
        return NOT_SUPPORTED + b"}", 0
    seconds = INIT_SECONDS if call == "init" else CALL_SECONDS
    try:
        if len(argv) - 2 != CALLS[call]:
            raise CallFailed(
                f"call {call} takes {CALLS[call]} arguments, and {len(argv) - 2} were given; run it as a kubelet does"
            )
        reply = ask(socket_path(argv[0]), request(call, argv[2:]), seconds)
    except CallFailed as error:
        return failure(str(error)), 1
    return reply, 0 if reply.startswith((SUCCESS, NOT_SUPPORTED)) else 1


def failure(message: str) -> bytes:
    """Return the JSON object of a failed call."""
    return FAILURE + b',"message":' + quoted(f"driver kubeletx.io/storage: {message}") + b"}"


def request(call: str, arguments: list[str]) -> bytes:
    """Return the request as a message."""
    words = b",".join(quoted(word) for word in arguments)
    parts = (
        b'{"protocol":',
        str(PROTOCOL).encode(),
        b',"driver":',
        quoted(VERSION),
        b',"call":',
        quoted(call),
        b',"arguments":[',
        words,
        b"]}",
    )
    text = b"".join(parts)
    if len(text) > MAX_REQUEST:
        raise CallFailed(f"the arguments have {len(text)} bytes; at most {MAX_REQUEST} are sent")
    return len(text).to_bytes(4, "big") + text


def quoted(text: str) -> bytes:
    """Return a JSON string, in ASCII."""
    try:
        from _json import encode_basestring_ascii
    except ImportError:  # a Python without the C part of json
        from json.encoder import py_encode_basestring_ascii as encode_basestring_ascii
    return encode_basestring_ascii(text).encode("ascii")


def socket_path(program: str) -> str:
    """Return the path of the agent's socket next to the real path of this file."""
    try:
        fd = posix.open(program, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            real = posix.readlink(f"/proc/self/fd/{fd}")
        finally:
            posix.close(fd)
    except OSError as error:
        raise CallFailed(f"it cannot find its own file {program}: {error.strerror}") from None
    return f"{real.rpartition('/')[0]}/{SOCKET}"


def ask(path: str, message: bytes, seconds: float) -> bytes:
    """Send the message to the agent at `path`, and return its answer. The whole call takes at most `seconds`."""
    ends = time.monotonic() + seconds
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    try:
        try:
            connect(sock, path, ends)
        except OSError as error:
            raise CallFailed(
                f"the storage agent does not answer at {path}: {error.strerror or error}; "
                "start 'kubeletx-flexvolume agent' on this node, or see its log"
            ) from None
        try:
            reply = exchange(sock, message, ends)
        except OSError as error:
            is_late = isinstance(error, _socket.timeout)
            problem = f"no answer within {seconds:g} s" if is_late else error.strerror or error
            raise CallFailed(
                f"the storage agent at {path} failed: {problem}; see its log, and repeat the call"
            ) from None
    finally:
        sock.close()
    if not (reply.startswith(b'{"status":"') and reply.endswith(b"}")):
        raise CallFailed(
            f"the storage agent at {path} sent no status; install driver and agent of one version"
        )
    return reply


def connect(sock: _socket.socket, path: str, ends: float) -> None:
    """Connect to the socket at `path`, also if the path is longer than an address; check that root serves it."""
    directory, _, name = path.rpartition("/")
    fd = posix.open(directory, posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
    try:
        pause = FIRST_PAUSE_SECONDS
        while True:
            sock.settimeout(left(ends))
            try:
                sock.connect(f"/proc/self/fd/{fd}/{name}")
                break
            except BlockingIOError:  # its queue is full; the kernel has no event for room in it
                time.sleep(min(pause, left(ends)))
                pause = min(pause * 2, LAST_PAUSE_SECONDS)
    finally:
        posix.close(fd)
    peer = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    uid = int.from_bytes(peer[4:8], sys.byteorder)
    if uid not in (0, posix.getuid()):
        raise PermissionError(errno.EPERM, f"user {uid} serves the socket, and not root")


def exchange(sock: _socket.socket, message: bytes, ends: float) -> bytes:
    """Send the message and receive the answer."""
    sock.settimeout(left(ends))
    sock.sendall(message)
    size = int.from_bytes(receive(sock, 4, ends), "big")
    if not 2 <= size <= MAX_REPLY:
        raise OSError(errno.EPROTO, f"its answer would have {size} bytes")
    return receive(sock, size, ends)


def receive(sock: _socket.socket, size: int, ends: float) -> bytes:
    """Receive exactly `size` bytes."""
    parts = []
    while size:
        sock.settimeout(left(ends))
        part = sock.recv(size)
        if not part:
            raise ConnectionResetError(errno.ECONNRESET, "it closed the connection without an answer")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def left(ends: float) -> float:
    """Return the seconds that are left. Raises the socket's time-out error if there are none."""
    seconds = ends - time.monotonic()
    if seconds <= 0:
        raise _socket.timeout("timed out")
    return seconds


def write(data: bytes) -> None:
    """Write all bytes to standard output."""
    while data:
        data = data[posix.write(1, data) :]


if __name__ == "__main__":
    try:
        text, code = main(sys.argv)
    except Exception as unexpected:  # noqa: BLE001 - the root: the kubelet reads one JSON object, whatever happens
        text, code = failure(f"unexpected {type(unexpected).__name__}"), 1  # its text may contain an argument
    write(text + b"\n")
    posix._exit(code)  # nothing is left to clean up, and the interpreter's own end takes milliseconds
