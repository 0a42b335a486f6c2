"""`SharedPulls`: concurrent requests for the same image share one pull.

A caller whose key is already being pulled waits for that pull and gets its result. When the last waiting caller is
cancelled, the pull is cancelled too. A later caller with the same key waits until the cancelled pull has ended, and
then starts a new one: two pulls of one key never run at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import TYPE_CHECKING, Generic, TypeVar

from .errors import Unavailable
from .observed import PullProgress

if TYPE_CHECKING:
    import asyncio  # at run time only in the methods: the command line imports this package and must start quickly

T = TypeVar("T")
OnProgress = Callable[[PullProgress], None]


class SharedPulls(Generic[T]):
    """Runs image pulls; all concurrent callers with the same key share one. `T`: type of a pull's result."""

    def __init__(self) -> None:
        """Create an object without running pulls."""
        self._pulls: dict[str, _Pull[T]] = {}

    @property
    def keys(self) -> Collection[str]:
        """Live view of the keys of all running pulls."""
        return self._pulls.keys()

    async def join(
        self, key: str, pull: Callable[[OnProgress], Awaitable[T]], on_progress: OnProgress | None = None
    ) -> T:
        """Wait for the running pull of this key, or start one with `pull`, and return its result.

        `key`: identifies the image. `pull`: pulls it; its argument is a function to which it passes progress
        reports. `on_progress`: called at once with the current progress, then with each report. Raises the
        error of the pull, or Unavailable if `close` cancelled it.
        """
        import asyncio

        while (shared := self._pulls.get(key)) is not None and shared.waiting == 0:
            await asyncio.wait((shared.task,))  # cancelled by its last waiter, not ended yet
            await asyncio.sleep(0)  # lets `_ended` run
        if shared is None:
            shared = self._pulls[key] = _Pull()
            shared.task = asyncio.create_task(_run(shared, pull), name=f"pull {key}")
            shared.task.add_done_callback(lambda task: self._ended(key, task))
        if on_progress is not None:
            shared.listeners.append(on_progress)
            on_progress(shared.progress)
        shared.waiting += 1
        try:
            return await asyncio.shield(shared.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise Unavailable(f"the pull of {key!r} was cancelled") from None
        finally:
            shared.waiting -= 1
            if on_progress is not None:
                shared.listeners.remove(on_progress)
            if shared.waiting == 0 and not shared.task.done():
                shared.task.cancel()

    async def close(self) -> None:
        """Cancel all pulls and wait until they have ended. In their callers, `join` raises Unavailable."""
        import asyncio

        tasks = [pull.task for pull in self._pulls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: str, task: asyncio.Task[T]) -> None:
        """Remove a pull that has ended or was cancelled."""
        del self._pulls[key]
        if not task.cancelled():
            task.exception()  # mark the error as retrieved, also if every waiting caller was cancelled


class _Pull(Generic[T]):
    task: asyncio.Task[T]

    def __init__(self) -> None:
        self.waiting = 0
        self.progress = PullProgress(message="waiting")
        self.listeners: list[OnProgress] = []

    def report(self, progress: PullProgress) -> None:
        self.progress = progress
        for listener in tuple(self.listeners):
            listener(progress)


async def _run(shared: _Pull[T], pull: Callable[[OnProgress], Awaitable[T]]) -> T:
    return await pull(shared.report)
