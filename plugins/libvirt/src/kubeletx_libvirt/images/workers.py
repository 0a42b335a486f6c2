"""`Workers`: two daemon threads for the store's disk and CPU work.

The host's thread door refuses a call when all its threads are busy, which suits short calls to libvirt; an
import works for minutes in many small steps, which may wait for each other. Threads are daemons, so that a
disk that hangs does not keep the program from ending.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_THREADS = 2


class Workers:
    """Calls wait for a free thread in the order they came."""

    def __init__(self, name: str, threads: int = _THREADS) -> None:
        self._name = name
        self._most = threads
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = 0

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The call's result. A cancelled caller stops waiting; the call itself runs to its end."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def work() -> None:
            try:
                outcome: tuple[bool, Any] = (True, function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                outcome = (False, error)
            with contextlib.suppress(RuntimeError):  # the loop is closed: no waiter is left
                loop.call_soon_threadsafe(_settle, future, *outcome)

        if self._threads < self._most:
            self._threads += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._work.put(work)
        return await future

    async def finish(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run like `run`; a cancelled caller waits until the call has ended, so that files can be removed."""
        return await self.finish_or_stop(threading.Event(), function, *args, **kwargs)

    async def finish_or_stop(
        self, stop: threading.Event, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Run like `finish`; a cancelled caller sets `stop`, which `function` checks."""
        task = asyncio.create_task(self.run(function, *args, **kwargs), name=f"{self._name}-call")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            stop.set()
            await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()
            raise

    def close(self) -> None:
        """Let the threads end once their work is done; a later call makes new ones."""
        for _ in range(self._threads):
            self._work.put(None)
        self._threads = 0

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _settle(future: asyncio.Future[Any], succeeded: bool, outcome: Any) -> None:
    if future.done():
        return
    if succeeded:
        future.set_result(outcome)
    else:
        future.set_exception(outcome)
