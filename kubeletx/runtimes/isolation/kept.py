"""`KeptChild`: a child process that is started on demand, and started again with growing delays after it has ended."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable

import structlog

from kubeletx.api import KubeletxError, Unavailable
from kubeletx.api.backoff import Backoff

from .process import ChildProcess, ChildUsage, usage_of

log = structlog.get_logger(__name__)

PING_SECONDS = 2.0
STABLE_SECONDS = 30.0


class KeptChild:
    """The child process of one owner. Not for concurrent calls of `answering`.

    A child that ends within `STABLE_SECONDS` is started again after a delay of 1 second, which grows to 60 seconds.
    """

    def __init__(
        self,
        owner: str,
        start: Callable[[], Awaitable[ChildProcess]],
        prepare: Callable[[ChildProcess], Awaitable[None]],
    ) -> None:
        """`owner`: for messages, such as ``runtime edge``. `start`: starts a child. `prepare`: makes its first call."""
        self._owner = owner
        self._start = start
        self._prepare = prepare
        self._child: ChildProcess | None = None
        self._backoff = Backoff(1.0, 60.0)
        self.starts = 0
        self.ping_seconds = PING_SECONDS
        """Deadline of the call that shows whether the child answers."""
        self.not_before = 0.0
        """Earliest time of the next start, by the event loop's clock."""

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.is_alive else None

    def usage(self) -> ChildUsage | None:
        """Return memory and CPU time of the child; None while no child runs. Blocks briefly."""
        return None if self.pid is None else usage_of(self.pid, self.starts - 1)

    def running(self) -> ChildProcess:
        """Return the child. Raises Unavailable if it does not run."""
        if self._child is None or not self._child.is_alive:
            raise Unavailable(f"{self._owner}: its process is not running")
        return self._child

    def take(self) -> ChildProcess | None:
        """Return the child and forget it: the caller stops it. None if there is none."""
        child, self._child = self._child, None
        return child

    async def answering(self) -> ChildProcess:
        """Return the child if it runs and answers; else end it, and start one.

        Raises Unavailable until the delay after the last end is over, and the errors of `start` and `prepare`.
        """
        child = self._child
        if child is not None:
            if child.is_alive and await self._answers(child):
                return child
            await self._give_up(child)
        now = asyncio.get_running_loop().time()
        if now < self.not_before:
            raise Unavailable(
                f"{self._owner}: its process ended; started again in {math.ceil(self.not_before - now)} s"
            )
        self.starts += 1
        child = None
        try:
            child = await self._start()
            await self._prepare(child)
        except BaseException:
            self._wait()
            if child is not None:
                await child.stop(0)
            raise
        self._child = child
        log.info("Started process of plugin", owner=self._owner, pid=child.pid)
        return child

    def _wait(self) -> None:
        """Begin the delay before the next start of a child. It counts from now, not from the begin of a slow start."""
        self.not_before = asyncio.get_running_loop().time() + self._backoff.next()

    async def _give_up(self, child: ChildProcess) -> None:
        lived_seconds = asyncio.get_running_loop().time() - child.started_at
        log.warning("Lost process of plugin", owner=self._owner, pid=child.pid)
        await child.stop(0)
        self._child = None  # not before: after a cancellation, `take` or the next call ends it
        if lived_seconds > STABLE_SECONDS:
            self._backoff.reset()
        else:
            self._wait()

    async def _answers(self, child: ChildProcess) -> bool:
        try:
            async with asyncio.timeout(self.ping_seconds):
                await child.control.ping()
        except (KubeletxError, TimeoutError):
            return False
        return True
