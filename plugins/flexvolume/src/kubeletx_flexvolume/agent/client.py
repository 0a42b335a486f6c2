"""`ask_agent`: asks a running agent for its state, through the socket in its state directory. Blocks."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path
from typing import Any, Final

from kubeletx.api import Unavailable

from ..driver.program import MAX_REPLY, PROTOCOL, VERSION
from .sockets import NAME
from .wire import LENGTH_BYTES, SUCCESS, framed

_SECONDS: Final = 10.0


def ask_agent(state_dir: Path) -> dict[str, Any]:
    """Return the state of the agent. Raises Unavailable if none answers."""
    message = json.dumps({"protocol": PROTOCOL, "driver": VERSION, "call": "status", "arguments": []})
    try:
        descriptor = os.open(state_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
                one.settimeout(_SECONDS)
                one.connect(f"/proc/self/fd/{descriptor}/{NAME}")
                one.sendall(framed(message.encode()))
                answer = json.loads(_received(one))
        finally:
            os.close(descriptor)
    except OSError as error:
        raise Unavailable(
            f"no storage agent answers at {state_dir / NAME}: {error.strerror or error}; "
            "start 'kubeletx-flexvolume agent', or give the --state-dir of the running agent"
        ) from error
    if answer.get("status") != SUCCESS:
        raise Unavailable(f"the storage agent at {state_dir} answered: {answer.get('message', '')}")
    state: dict[str, Any] = answer["agent"]
    return state


def _received(connection: socket.socket) -> bytes:
    size = int.from_bytes(_exactly(connection, LENGTH_BYTES), "big")
    if size > MAX_REPLY:
        raise OSError(f"its answer has {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError(104, "it closed the connection")
        data += part
    return data
