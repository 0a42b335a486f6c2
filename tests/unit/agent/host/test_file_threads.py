"""Threads for file work: a call that hangs gives its turn to the next."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kubeletx.agent.parts.volumes import FileThreads
from kubeletx.api import Unavailable
from kubeletx_testing.waiting import until


def file_threads() -> FileThreads:
    return FileThreads(turns=2, threads=4, long_seconds=0.01)


async def test_results_and_errors_come_back() -> None:
    files = file_threads()
    assert await files(sum, [1, 2]) == 3
    with pytest.raises(ZeroDivisionError):
        await files(divmod, 1, 0)
    files.close()


async def test_calls_that_hang_delay_no_other_until_all_threads_do() -> None:
    files, gate = file_threads(), threading.Event()
    stuck = [asyncio.create_task(files(gate.wait)) for _ in range(3)]
    async with asyncio.timeout(60):
        assert await files(sum, [1]) == 1
        stuck.append(asyncio.create_task(files(gate.wait)))
        await until(lambda: files.busy == 4)
        with pytest.raises(Unavailable):
            await files(sum, [1])
        gate.set()
        assert await asyncio.gather(*stuck) == [True] * 4
        assert await files(sum, [1]) == 1
    files.close()


async def test_a_cancelled_caller_does_not_wait_for_its_call() -> None:
    files, gate = file_threads(), threading.Event()
    task = asyncio.create_task(files(gate.wait))
    await until(lambda: files.busy == 1)
    task.cancel()
    async with asyncio.timeout(1):
        await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    gate.set()
    files.close()
