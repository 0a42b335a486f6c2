"""A wait that ends early when tasks stall for memory."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from kubeletx.node.memory_events import MemoryEvents, pressure_trigger
from kubeletx.testing import FakeClock


async def test_without_the_kernels_file_the_wait_takes_its_time(tmp_path: Path) -> None:
    clock = FakeClock()
    events = MemoryEvents(clock, pressure_trigger(tmp_path / "none"))
    assert not events.is_watching
    waiting = asyncio.ensure_future(events.wait(10))
    await clock.run_for(9)
    assert not waiting.done()
    await clock.run_for(1)
    assert waiting.done()
    events.close()


async def test_a_stall_ends_the_wait_early() -> None:
    """Urgent data of a socket is the priority event that stands for the kernel's."""
    clock = FakeClock()
    server = socket.create_server(("127.0.0.1", 0))
    theirs = socket.create_connection(server.getsockname())
    ours, _ = server.accept()
    events = MemoryEvents(clock, ours.detach())
    began = clock.monotonic()
    waiting = asyncio.ensure_future(events.wait(10))
    await clock.run_for(2)
    assert not waiting.done()
    theirs.send(b"!", socket.MSG_OOB)
    await asyncio.wait_for(waiting, 60)
    assert clock.monotonic() - began < 10
    for one in (server, theirs, events):
        one.close()


async def test_the_pressure_file_of_this_machine_is_watched_where_it_exists() -> None:
    path = Path("/proc/pressure/memory")
    clock = FakeClock()
    events = MemoryEvents(clock, pressure_trigger(path))
    if not events.is_watching:
        # the code's answer to that, to wait without events, is tested above; only the kernel's own file is missing
        pytest.skip("this kernel has no PSI, or this user may not ask it")
    waiting = asyncio.ensure_future(events.wait(10))
    await clock.run_for(10)
    await asyncio.wait_for(waiting, 60)
    events.close()
