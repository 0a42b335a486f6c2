"""Limits of calls to image stores: `TokenBucket` and `PullDelays` for pulls, `Shared` for concurrent equal calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

import msgspec

from kubeletx.api import Clock

T = TypeVar("T")


class TokenBucket:
    """Limits a rate: allows `qps` calls per second on average and `burst` at once. `qps` 0 means no limit."""

    def __init__(self, clock: Clock, qps: float, burst: int) -> None:
        self._clock = clock
        self._qps = qps
        self._burst = max(1, burst)
        self._tokens = float(self._burst)
        self._filled_at = clock.monotonic()

    async def take(self) -> None:
        """Wait until this call is allowed; callers are allowed in the order in which they called."""
        if self._qps <= 0:
            return
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now
        self._tokens -= 1
        if self._tokens < 0:
            await self._clock.sleep(-self._tokens / self._qps)


class Delay(msgspec.Struct, frozen=True, kw_only=True):
    """Back-off of one image after a failed pull.

    `seconds`: length of the delay. `until`: monotonic time of its end. `message`: error of the pull.
    """

    seconds: float
    until: float
    message: str


class PullDelays:
    """Computes the delays between failed pulls of an image. Each key `image` has its own delay.

    Each failure doubles the delay, from `first` to `cap` seconds. It starts again after a success, or if the image was
    not tried for twice the cap.
    """

    def __init__(self, first: float, cap: float) -> None:
        self._first = first
        self._cap = cap
        self._delays: dict[str, Delay] = {}

    def find(self, image: str, now: float) -> Delay | None:
        """Return the image's delay if it has not ended at the monotonic time `now`, else None."""
        delay = self._delays.get(image)
        return delay if delay is not None and now < delay.until else None

    def fail(self, image: str, now: float, message: str) -> Delay:
        """Record a failed pull at the monotonic time `now`; return the delay until the next one is allowed."""
        old = self._delays.get(image)
        if old is None or now - old.until > 2 * self._cap:
            seconds = self._first
        else:
            seconds = min(self._cap, old.seconds * 2)
        delay = Delay(seconds=seconds, until=now + seconds, message=message)
        self._delays[image] = delay
        for name in [n for n, d in self._delays.items() if now - d.until > 2 * self._cap]:
            del self._delays[name]
        return delay

    def succeed(self, image: str) -> None:
        """Drop the image's delay after a successful pull."""
        self._delays.pop(image, None)


class Shared(Generic[T]):
    """Lets concurrent callers share one running call.

    Only for calls that read: the call may have begun before the caller joined, and its result may be that old.
    """

    def __init__(self, name: str) -> None:
        """`name`: first part of the names of the asyncio tasks that make the calls."""
        self._name = name
        self._calls: dict[Hashable, asyncio.Task[T]] = {}

    async def join(self, key: Hashable, call: Callable[[], Awaitable[T]]) -> T:
        """Return the result of the running call for `key`; if there is none, start one with `call`.

        A cancelled caller does not affect the others.
        """
        task = self._calls.get(key)
        if task is None:
            task = self._calls[key] = asyncio.ensure_future(_task_of(call))
            task.set_name(f"{self._name} {key}")
            task.add_done_callback(lambda done: self._ended(key, done))
        # Without the shield the first cancelled caller would cancel the call of all others.
        return await asyncio.shield(task)

    def close(self) -> None:
        """Cancel the running calls; their callers are cancelled too."""
        for task in self._calls.values():
            task.cancel()

    def _ended(self, key: Hashable, done: asyncio.Task[T]) -> None:
        self._calls.pop(key, None)
        if not done.cancelled():
            done.exception()  # retrieved, even if all callers were cancelled


async def _task_of(call: Callable[[], Awaitable[T]]) -> T:
    return await call()
