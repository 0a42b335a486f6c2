"""Deadlines of calls that leave the process (`within`), and waits for an event with a limit (`wait_for_event`)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeletx.api import Clock, TimedOut


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Cancel the body after `seconds`, and raise TimedOut: ``WHAT within SECONDS s``."""
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise TimedOut(f"{what} within {seconds:g} s") from error


async def wait_for_event(event: asyncio.Event, clock: Clock, seconds: float, what: str) -> None:
    """Return when the event is set, or after `seconds` of `clock`. `what`: for the names of the tasks."""
    waits = [
        asyncio.create_task(event.wait(), name=f"{what}: event"),
        asyncio.create_task(clock.sleep(seconds), name=f"{what}: next round"),
    ]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in waits:
            one.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
