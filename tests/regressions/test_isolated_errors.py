"""An exception of a runtime in a child process counts as one of a runtime in the agent's process.

Every OSError counted as Unavailable, also TimeoutError and a file that is missing; SystemExit ended the child process.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Protocol

import pytest

from kubeletx.api import Internal, KubeletxError, TimedOut, Unavailable
from kubeletx.api.names import PLUGIN_ERROR
from kubeletx.runtimes.isolation.peer import Peer
from kubeletx.runtimes.isolation.remote import Served, remote_class


class Opens(Protocol):
    async def open(self) -> None: ...


class Raising:
    def __init__(self, error: BaseException) -> None:
        self.error = error

    async def open(self) -> None:
        raise self.error


async def error_over_a_socket(error: BaseException) -> KubeletxError:
    """The error that the agent gets if the child's object raises `error`."""
    ours, theirs = socket.socketpair()
    served = Served()
    served.put("runtime", Raising(error), Opens)
    agent = Peer("the child", *await asyncio.open_connection(sock=ours), Served())
    child = Peer("the agent", *await asyncio.open_connection(sock=theirs), served)
    running = [asyncio.create_task(peer.run()) for peer in (agent, child)]
    try:
        async with asyncio.timeout(10):
            with pytest.raises(KubeletxError) as caught:
                await remote_class(Opens)(lambda: agent, "runtime").open()
    finally:
        agent.close()
        await asyncio.gather(*running)
    return caught.value


@pytest.mark.parametrize(
    ("error", "expected", "reason"),
    [
        (TimeoutError("late"), TimedOut, None),
        (ConnectionRefusedError("refused"), Unavailable, None),
        (asyncio.IncompleteReadError(b"", 4), Unavailable, None),
        (FileNotFoundError(2, "No such file or directory", "/etc/backend.conf"), Internal, PLUGIN_ERROR),
        (ValueError("bad"), Internal, PLUGIN_ERROR),
        (SystemExit("not mine"), Internal, PLUGIN_ERROR),
    ],
)
async def test_an_exception_has_the_same_class_as_without_isolation(
    error: BaseException, expected: type[KubeletxError], reason: str | None
) -> None:
    found = await error_over_a_socket(error)
    assert (type(found), found.reason) == (expected, reason)
    assert str(found).startswith(f"open: {type(error).__name__}: ")
    if expected is Internal:
        assert f" at {__file__}:" in str(found)
