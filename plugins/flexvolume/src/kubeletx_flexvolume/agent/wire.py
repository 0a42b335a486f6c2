"""Messages between driver and agent: a 4-byte length (big endian) and a JSON object.

The driver (`driver.program`) prints the agent's reply without decoding it. So the reply is the JSON object that a
kubelet expects, in ASCII, and ``status`` is its first member.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from kubeletx.api import InvalidConfig, InvalidPod, Unavailable

from ..driver import program
from ..driver.program import MAX_REPLY, MAX_REQUEST, PROTOCOL

SOCKET: Final = "agent.sock"
SUCCESS: Final = "Success"
FAILURE: Final = "Failure"
NOT_SUPPORTED: Final = "Not supported"
LENGTH_BYTES: Final = 4
_LONGEST_MESSAGE: Final = 4096
_MAX_DRIVER: Final = 64
_STATUS_SECONDS: Final = 10.0


class DriverRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One call. `protocol`, `driver`: versions. Its repr does not show the arguments, which may contain secrets."""

    protocol: int
    driver: str
    call: str
    arguments: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"DriverRequest({self.call}, driver={self.driver}, {len(self.arguments)} arguments)"


async def read_message(reader: asyncio.StreamReader, limit: int = MAX_REQUEST) -> bytes:
    """Return the next message. Raises InvalidPod if it is too long, and EOFError if the connection ends before."""
    try:
        size = int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big")
        if not 2 <= size <= limit:
            raise InvalidPod(
                obj="message", field="length", problem=f"{size} bytes; at most {limit} are accepted"
            )
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise EOFError("the connection ended within a message") from error


def parse_request(message: bytes) -> DriverRequest:
    """Decode a request. Raises InvalidPod, or InvalidConfig for another version of the protocol."""
    try:
        request = msgspec.json.decode(message, type=DriverRequest)
    except (
        msgspec.DecodeError,
        UnicodeError,
        RecursionError,
    ) as error:  # their texts contain no value of the message
        raise InvalidPod(obj="message", field="content", problem=f"no request: {error}") from None
    if request.protocol != PROTOCOL:
        raise InvalidConfig(
            obj=f"driver kubeletx.io/storage {request.driver[:_MAX_DRIVER]!r}",
            field="protocol",
            problem=f"it has version {request.protocol}, and the agent {PROTOCOL}",
            fix="the agent installs its own driver; repeat the call",
        )
    return request


def reply(status: str, message: str = "", **members: Any) -> bytes:
    """Return the text of a reply."""
    content: Mapping[str, Any] = {
        "status": status,
        **({"message": message[:_LONGEST_MESSAGE]} if message else {}),
        **members,
    }
    return json.dumps(content, separators=(",", ":"), ensure_ascii=True).encode()


def framed(text: bytes, limit: int = MAX_REPLY) -> bytes:
    """Return the message with its length before it."""
    if len(text) > limit:
        text = reply(FAILURE, f"the answer has {len(text)} bytes; at most {limit} are sent")
    return len(text).to_bytes(LENGTH_BYTES, "big") + text


def ask_agent(state_dir: Path) -> dict[str, Any]:
    """Return the state of the agent with this state directory. Blocks. Raises Unavailable if none answers."""
    try:
        answer = json.loads(
            program.ask(f"{state_dir}/{SOCKET}", program.request("status", []), _STATUS_SECONDS)
        )
    except program.CallFailed as error:
        raise Unavailable(f"{error}; --state-dir must be that of the running agent") from error
    if answer["status"] != SUCCESS:
        raise Unavailable(f"the storage agent at {state_dir} answered: {answer.get('message', '')}")
    state: dict[str, Any] = answer["agent"]
    return state
