"""The watchdog logs a stall of the event loop with its stack."""

from __future__ import annotations

import asyncio
import time

import pytest
import structlog

from kubeletx.agent.host import watchdog
from kubeletx.agent.host.watchdog import EventLoopWatchdog
from kubeletx_testing.waiting import until


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(watchdog, "STALL_SECONDS", 0.02)


def kubeletx_blocking_code() -> None:
    time.sleep(0.15)


async def test_a_stall_is_reported_with_the_code_that_caused_it() -> None:
    with structlog.testing.capture_logs() as said:
        watch = EventLoopWatchdog()
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
        watch = EventLoopWatchdog()
        watch.start()
        for _ in range(10):
            await asyncio.sleep(0.005)
        watch.close()
    assert [line for line in said if line["elapsed_seconds"] > 1] == []


async def test_a_loop_that_never_answers_is_not_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = EventLoopWatchdog()
    monkeypatch.setattr(watchdog, "DEAD_SECONDS", -1.0)
    assert not watch.is_alive
