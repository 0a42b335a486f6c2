"""`sleep_or`: waits for a time or an event, by a `Clock` that tests can replace."""

from __future__ import annotations

import asyncio

from kubeletx.api import Clock


async def sleep_or(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Wait until `seconds` have passed or `event` is set; return True if the event is set."""
    if event.is_set():
        return True
    sleeper = asyncio.create_task(_sleep(clock, seconds), name="sleep")
    waiter = asyncio.create_task(_wait(event), name="wait")
    try:
        await asyncio.wait((sleeper, waiter), return_when=asyncio.FIRST_COMPLETED)
    finally:
        sleeper.cancel()
        waiter.cancel()
    return event.is_set()


async def _sleep(clock: Clock, seconds: float) -> None:
    await clock.sleep(seconds)


async def _wait(event: asyncio.Event) -> None:
    await event.wait()
