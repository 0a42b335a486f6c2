"""What systemd hears of the agent."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubeletx.agent.host.service_manager import ServiceManager

GUARD_SECONDS = 60


@pytest.fixture
def ear(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        one.bind(str(tmp_path / "notify"))
        one.settimeout(GUARD_SECONDS)
        yield one


def environment(ear: socket.socket, **more: str) -> dict[str, str]:
    return {"NOTIFY_SOCKET": ear.getsockname(), **more}


def test_it_says_ready_and_stopping(ear: socket.socket) -> None:
    manager = ServiceManager(environment(ear))
    manager.ready("node one")
    manager.stopping()
    assert ear.recv(200) == b"READY=1\nSTATUS=node one"
    assert ear.recv(200).startswith(b"STOPPING=1\n")


async def test_signs_of_life_come_from_the_loop(ear: socket.socket) -> None:
    manager = ServiceManager(environment(ear, WATCHDOG_USEC="20000", WATCHDOG_PID=str(os.getpid())))
    task = asyncio.create_task(manager.run())
    heard = [await asyncio.to_thread(ear.recv, 200) for _ in range(3)]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert heard == [b"WATCHDOG=1"] * 3


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "x"},
        {"WATCHDOG_USEC": "²"},
        {"WATCHDOG_USEC": "20000", "WATCHDOG_PID": "1"},
    ],
)
async def test_nobody_waits_for_signs_of_life(ear: socket.socket, more: dict[str, str]) -> None:
    async with asyncio.timeout(GUARD_SECONDS):
        await ServiceManager(environment(ear, **more)).run()


def test_an_abstract_socket_is_reached() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
        name = f"kubeletx-test-{os.getpid()}"
        one.bind("\0" + name)
        one.settimeout(GUARD_SECONDS)
        ServiceManager({"NOTIFY_SOCKET": f"@{name}"}).ready("x")
        assert one.recv(200).startswith(b"READY=1")


@pytest.mark.parametrize("given", [{}, {"NOTIFY_SOCKET": ""}, {"NOTIFY_SOCKET": "/nowhere/notify"}])
async def test_without_a_service_manager_nothing_happens(given: dict[str, str]) -> None:
    manager = ServiceManager(given)
    manager.ready("x")
    manager.stopping()
    async with asyncio.timeout(GUARD_SECONDS):
        await manager.run()
