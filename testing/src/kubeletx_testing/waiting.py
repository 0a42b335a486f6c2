"""Waiting in tests for a condition that a socket, a thread or another process makes true.

Tests do not sleep for a fixed time. They await events, and move the fake clock for what depends on time; the
functions here check any other condition repeatedly until it is true. A condition that stays false fails the
test after GUARD_SECONDS.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

GUARD_SECONDS = 60.0
_PAUSE_SECONDS = 0.001
_TURNS = 50
"""Number of checks with one turn of the event loop between them, before the checks with a real pause: what
only needs the loop takes no time.
"""


async def until(holds: Callable[[], object]) -> None:
    """Let the event loop, threads and other processes work until `holds` returns a true value; fails after
    `GUARD_SECONDS`.
    """
    end = time.monotonic() + GUARD_SECONDS
    turns = 0
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {GUARD_SECONDS:g} s"
        turns += 1
        await asyncio.sleep(0 if turns <= _TURNS else _PAUSE_SECONDS)


async def let_others_work() -> None:
    """Pause for a millisecond, for a test that checks a condition in a loop of its own, so that threads and
    processes can work.
    """
    await asyncio.sleep(_PAUSE_SECONDS)


def block_until(holds: Callable[[], object]) -> None:
    """Wait like `until`, but block the thread, in a test without an event loop."""
    end = time.monotonic() + GUARD_SECONDS
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {GUARD_SECONDS:g} s"
        time.sleep(_PAUSE_SECONDS)
