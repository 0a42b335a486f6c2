"""Waits for the first of several things, for a time, or with a deadline; and the system's clock."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

from .errors import TimedOut
from .host import Clock


class SystemClock:
    """The operating system's clocks; timers run on the event loop. Implements `Clock`."""

    def now(self) -> datetime:
        """Return the wall-clock time, as an aware datetime in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Return the monotonic time in seconds."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait for `seconds` of monotonic time."""
        await asyncio.sleep(seconds)

    def call_at(self, when: float, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` on the event loop at the monotonic time `when`; return a function that cancels the timer."""
        return asyncio.get_running_loop().call_at(when, callback).cancel


async def first_of(name: str, *waits: Awaitable[Any]) -> tuple[asyncio.Future[Any] | None, ...]:
    """Wait until one of `waits` has ended. Return, for each in order, its ended future, or None if it had not ended.

    Coroutines run as tasks called `name`; unfinished tasks are cancelled, and have ended when this function
    returns, also if the caller is cancelled. Futures and tasks of the caller are left as they are.
    """
    futures = [wait if isinstance(wait, asyncio.Future) else _task(name, wait) for wait in waits]
    own = [future for wait, future in zip(waits, futures, strict=True) if wait is not future]
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
        return tuple(future if future.done() else None for future in futures)
    finally:
        for future in own:
            future.cancel()
        # Ended tasks too: asyncio logs an exception that is never retrieved.
        await asyncio.gather(*own, return_exceptions=True)


def _task(name: str, wait: Awaitable[Any]) -> asyncio.Task[Any]:
    async def run() -> Any:
        return await wait

    return asyncio.create_task(run(), name=name)


async def sleep_or(clock: Clock, seconds: float, event: asyncio.Event) -> bool:
    """Wait until `seconds` have passed or `event` is set; return True if the event is set."""
    if not event.is_set():
        await first_of("sleep", clock.sleep(seconds), event.wait())
    return event.is_set()


@asynccontextmanager
async def within(seconds: float, what: str) -> AsyncIterator[None]:
    """Cancel the body after `seconds` of the event loop's time, and raise TimedOut: ``WHAT within SECONDS s``.

    A TimeoutError that the body raises itself passes.
    """
    deadline = asyncio.timeout(seconds)
    try:
        async with deadline:
            yield
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise TimedOut(f"{what} within {seconds:g} s") from error
