"""The thread door."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kubeletx.api import Unavailable
from kubeletx.runtimes.host.threads import ThreadDoor


async def test_results_and_exceptions_come_back() -> None:
    door = ThreadDoor("x")
    assert await door.run(lambda a, b: a + b, 1, b=2) == 3
    with pytest.raises(ZeroDivisionError):
        await door.run(lambda: 1 // 0)
    with pytest.raises(RuntimeError, match="StopIteration"):
        await door.run(next, iter(()))
    door.close()
    with pytest.raises(Unavailable, match="closed"):
        await door.run(int)


async def test_a_hung_call_keeps_its_slot_and_no_slot_means_unavailable_at_once() -> None:
    door = ThreadDoor("x", slots=2)
    release = threading.Event()
    hung = [asyncio.create_task(door.run(release.wait)) for _ in range(2)]
    await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="all 2 threads hang"):
        await door.run(int)
    hung[0].cancel()
    await asyncio.gather(hung[0], return_exceptions=True)
    assert door.busy == 2
    with pytest.raises(Unavailable):
        await door.run(int)
    release.set()
    assert await hung[1] is True
    async with asyncio.timeout(60):
        while door.busy:
            await asyncio.sleep(0)
    assert await door.run(int) == 0
    door.close()


async def test_threads_are_daemons_with_the_runtimes_name() -> None:
    door = ThreadDoor("kvm")
    thread = await door.run(threading.current_thread)
    assert thread.daemon
    assert thread.name == "kvm-1"
    assert await door.run(threading.current_thread) is thread
    door.close()
