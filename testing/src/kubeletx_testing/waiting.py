"""Waits in tests for a condition that a socket, a thread or another process makes true.

Tests do not sleep for a fixed time. They await events, and they move the fake clock for what depends on time.
The functions here check any other condition repeatedly until it is true. If a condition remains false for
GUARD_SECONDS, the test fails.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

GUARD_SECONDS = 60.0
_PAUSE_SECONDS = 0.001
_BLOCKED_PAUSE_SECONDS = 0.01
_TURNS = 50
"""Number of checks between which only one turn of the event loop passes; later checks are a millisecond apart.

So a condition that needs only the event loop causes no real pause.
"""


async def until(holds: Callable[[], object]) -> None:
    """Wait until `holds` returns a true value, while the event loop, threads and other processes work.

    Raises AssertionError after `GUARD_SECONDS`.
    """
    end = time.monotonic() + GUARD_SECONDS
    turns = 0
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {GUARD_SECONDS:g} s"
        turns += 1
        await asyncio.sleep(0 if turns <= _TURNS else _PAUSE_SECONDS)


async def let_others_work() -> None:
    """Pause for a millisecond, so that threads and other processes can work.

    For a test that checks a condition in its own loop.
    """
    await asyncio.sleep(_PAUSE_SECONDS)


def block_until(holds: Callable[[], object]) -> None:
    """Wait as `until` does, but block the thread; for a test without an event loop.

    Checks are 10 ms apart: some read all processes of the machine, and would take the time of those that they await.
    """
    end = time.monotonic() + GUARD_SECONDS
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {GUARD_SECONDS:g} s"
        time.sleep(_BLOCKED_PAUSE_SECONDS)
