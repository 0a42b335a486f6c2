"""The watchdog logs a stall of the event loop with its stack."""

from __future__ import annotations

import asyncio
import time

import structlog

from kubeletx.agent.host.watchdog import EventLoopWatchdog, StallTimes
from kubeletx_testing.waiting import until

FAST = StallTimes(ask_seconds=0.01, stall_seconds=0.02)


def kubeletx_blocking_code() -> None:
    time.sleep(0.15)


async def test_a_stall_is_reported_with_the_code_that_caused_it() -> None:
    with structlog.testing.capture_logs() as said:
        watch = EventLoopWatchdog(times=FAST)
        watch.start()
        await asyncio.sleep(0.03)
        kubeletx_blocking_code()
        async with asyncio.timeout(60):
            await until(lambda: said)
        watch.close()
    assert said[0]["event"] == "Event loop stalled"
    assert "kubeletx_blocking_code" in said[0]["stack"]
    assert watch.worst_seconds >= 0.05
    assert watch.is_alive


async def test_a_loop_that_answers_is_not_told() -> None:
    with structlog.testing.capture_logs() as said:
        watch = EventLoopWatchdog(times=StallTimes(ask_seconds=0.001, stall_seconds=60))
        watch.start()
        for _ in range(10):
            await asyncio.sleep(0.005)
        watch.close()
    assert said == []


async def test_a_loop_that_never_answers_is_not_alive() -> None:
    assert not EventLoopWatchdog(times=StallTimes(dead_seconds=0)).is_alive
