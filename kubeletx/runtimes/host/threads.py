"""`ThreadDoor`: a runtime's or plugin's own few daemon threads for blocking calls.

A hung call keeps its thread; when all are busy the next call is refused at once instead of waiting behind it.
Threads are made when first needed, are daemons, and so never delay the exit of the program.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from kubeletx.api import Unavailable

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_SLOTS = 4


class ThreadDoor:
    """`name` stands in thread names and messages, there after `owner`; at most `slots` calls at once."""

    def __init__(self, name: str, slots: int = DEFAULT_SLOTS, owner: str = "runtime") -> None:
        self._name = name
        self._owner = owner
        self._slots = slots
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy = 0
        self._threads = 0
        self._closed = False

    @property
    def busy(self) -> int:
        """Calls that have not returned, abandoned ones included."""
        return self._busy

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """The call's result. Raises Unavailable at once when every thread is taken.

        A cancelled caller stops waiting; the call itself goes on and keeps its thread until it returns.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def work() -> None:
            try:
                outcome: tuple[bool, Any] = (True, function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                outcome = (False, error)
            with self._lock:
                self._busy -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_settle, future, *outcome)

        self._start(work)
        return await future

    def close(self) -> None:
        """Let idle threads end; busy ones end when their call returns."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._work.put(None)

    def _start(self, work: Callable[[], None]) -> None:
        with self._lock:
            if self._closed or self._busy >= self._slots:
                why = "closed" if self._closed else f"all {self._slots} threads hang in earlier calls"
                raise Unavailable(f"{self._owner} {self._name}: no thread for this call: {why}")
            self._busy += 1
            if self._busy > self._threads:
                self._threads += 1
                threading.Thread(
                    target=self._serve, name=f"{self._name}-{self._threads}", daemon=True
                ).start()
            self._work.put(work)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            work()


def _settle(future: asyncio.Future[Any], succeeded: bool, outcome: Any) -> None:
    if future.done():
        return
    if succeeded:
        future.set_result(outcome)
    elif isinstance(outcome, StopIteration):
        future.set_exception(RuntimeError("the call raised StopIteration"))
    else:
        future.set_exception(outcome)
