"""`BoundedThreadPool`: a limited number of daemon threads that run blocking calls.

    pool = BoundedThreadPool("libvirt-kvm", threads=4)                               # refuses when all threads are busy
    pool = BoundedThreadPool("libvirt-images", threads=2, when_full=WhenFull.WAIT)   # queues

A call that hangs occupies its thread until it returns. Use `WhenFull.REFUSE` for short calls to a daemon that may
hang: if all threads hang, further calls fail at once instead of waiting, or after `patience_seconds`, so that many
calls at the same time do not fail. Use `WhenFull.WAIT` for long work. Threads are created when first needed. They are
daemon threads, so they never delay the exit of the program.
"""

from __future__ import annotations

import contextlib
import enum
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from .errors import Unavailable

if (
    TYPE_CHECKING
):  # at run time only in the methods: the command line imports this package and must start quickly
    import asyncio
    import threading

P = ParamSpec("P")
R = TypeVar("R")

DEFAULT_THREADS = 4


class WhenFull(enum.Enum):
    """Policy of a `BoundedThreadPool` for a new call while all its threads are busy."""

    REFUSE = "refuse"
    """The call raises Unavailable at once, or after the pool's patience. It also does so after `close`."""
    WAIT = "wait"
    """The call waits for a free thread, in the order of the calls. A call after `close` starts new threads."""


class BoundedThreadPool:
    """Runs blocking calls on a limited number of daemon threads, for the tasks of one event loop."""

    def __init__(
        self,
        name: str,
        threads: int = DEFAULT_THREADS,
        *,
        when_full: WhenFull = WhenFull.REFUSE,
        owner: str = "runtime",
        patience_seconds: float = 0.0,
    ) -> None:
        """`threads`: maximum number of calls that run at the same time. `when_full`: policy for further calls.

        `name`: for thread names and error messages. `owner`: word for the pool's owner in error messages, which
        read ``OWNER NAME: no thread for this call``. `patience_seconds`: time for which a call waits for a free thread
        before it is refused.
        """
        import queue
        import threading

        self._name = name
        self._owner = owner
        self._most = threads
        self._when_full = when_full
        self._patience_seconds = patience_seconds if when_full is WhenFull.REFUSE else 0.0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._granted = 0  # free threads that calls in `_waiting` got and do not use yet
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._busy = 0
        self._threads = 0
        self._closed = False

    @property
    def busy(self) -> int:
        """Number of unfinished calls, also if they still wait for a thread or their caller was cancelled."""
        return self._busy

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` on a thread and return its result.

        If the caller is cancelled, it stops waiting; the function continues on its thread until it returns.
        """
        import asyncio

        loop = asyncio.get_running_loop()
        if self._patience_seconds and (self._is_full or self._waiting):
            await self._wait_for_thread()
        future: asyncio.Future[R] = loop.create_future()

        def work() -> None:
            try:
                outcome: tuple[bool, Any] = (True, function(*args, **kwargs))
            except BaseException as error:  # noqa: BLE001 - handed to the caller
                outcome = (False, error)
            with self._lock:
                self._busy -= 1
            with contextlib.suppress(RuntimeError):  # the loop is closed: no waiter is left
                loop.call_soon_threadsafe(self._settle, future, *outcome)

        self._start(work)
        return await future

    async def finish(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Call `function` as `run` does. If the caller is cancelled, it waits until the function has returned.

        Use it for functions that use files which the caller removes afterwards.
        """
        import threading

        return await self.finish_or_stop(threading.Event(), function, *args, **kwargs)

    async def finish_or_stop(
        self, stop: threading.Event, function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        """Call `function` as `finish` does. If the caller is cancelled, `stop` is set first.

        The function should check `stop` regularly and return early when it is set.
        """
        import asyncio

        task = asyncio.create_task(self.run(function, *args, **kwargs), name=f"{self._name}-call")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            stop.set()
            while not task.done():
                with contextlib.suppress(
                    asyncio.CancelledError
                ):  # a second one does not end the function either
                    await asyncio.wait((task,))
            if not task.cancelled():
                task.exception()
            raise

    def close(self) -> None:
        """End the idle threads now, and each busy thread when its call returns."""
        with self._lock:
            self._closed = True
            for _ in range(self._threads):
                self._work.put(None)
            if self._when_full is WhenFull.WAIT:
                self._threads = 0

    @property
    def _is_full(self) -> bool:
        return self._busy + self._granted >= self._most

    async def _wait_for_thread(self) -> None:
        """Wait until a thread is free, in the order of the calls, at most for the pool's patience.

        Returns also at the end of that time; `_start` then refuses the call.
        """
        import asyncio

        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await asyncio.wait((turn,), timeout=self._patience_seconds)
        except asyncio.CancelledError:
            if turn.done():
                self._granted -= 1
                self._wake()
            raise
        finally:
            with contextlib.suppress(ValueError):
                self._waiting.remove(turn)
        if turn.done():
            self._granted -= 1

    def _wake(self) -> None:
        """Grant a free thread to the first call that waits for one."""
        if self._waiting and not self._is_full:
            self._granted += 1
            self._waiting.popleft().set_result(None)

    def _settle(self, future: asyncio.Future[Any], succeeded: bool, outcome: Any) -> None:
        self._wake()
        _settle(future, succeeded, outcome)

    def _start(self, work: Callable[[], None]) -> None:
        import threading

        with self._lock:
            if self._when_full is WhenFull.REFUSE and (self._closed or self._busy >= self._most):
                why = "closed" if self._closed else f"all {self._most} threads hang in earlier calls"
                raise Unavailable(f"{self._owner} {self._name}: no thread for this call: {why}")
            self._busy += 1
            if self._threads < min(self._busy, self._most):
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
