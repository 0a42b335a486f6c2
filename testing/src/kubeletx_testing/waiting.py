"""Waiting in tests for a condition that a socket, a thread or another process makes true.

No test sleeps for a time of its own: what an event tells is awaited, what a clock decides happens on the fake clock, and the
rest is asked here until it holds. A condition that never holds fails the test after GUARD_SECONDS.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

GUARD_SECONDS = 60.0
_PAUSE_SECONDS = 0.001
_TURNS = 50
"""Turns of the event loop before the first real pause: what only needs the loop costs no time."""


async def until(holds: Callable[[], object]) -> None:
    """Let the event loop, threads and other processes work until `holds` returns something true."""
    end = time.monotonic() + GUARD_SECONDS
    turns = 0
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {GUARD_SECONDS:g} s"
        turns += 1
        await asyncio.sleep(0 if turns <= _TURNS else _PAUSE_SECONDS)


async def let_others_work() -> None:
    """Give threads and other processes a moment, in a loop that asks for its condition itself."""
    await asyncio.sleep(_PAUSE_SECONDS)


def block_until(holds: Callable[[], object]) -> None:
    """Wait as `until` does, in a test without an event loop."""
    end = time.monotonic() + GUARD_SECONDS
    while not holds():
        assert time.monotonic() < end, f"it did not happen within {GUARD_SECONDS:g} s"
        time.sleep(_PAUSE_SECONDS)
