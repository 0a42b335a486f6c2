"""`SharedPulls`: ten pods, one image, one pull.

Callers that want a key in progress join its pull and share the result. When the last caller is cancelled the pull is
cancelled too, and the next caller first waits for its end: two pulls never write to the same place.
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
    """The running pulls by a key of yours; each gives a `T`."""

    def __init__(self) -> None:
        """Start without pulls."""
        self._pulls: dict[str, _Pull[T]] = {}

    @property
    def keys(self) -> Collection[str]:
        """Keys of running pulls; a live, read-only view."""
        return self._pulls.keys()

    async def join(
        self, key: str, pull: Callable[[OnProgress], Awaitable[T]], on_progress: OnProgress | None = None
    ) -> T:
        """The result of the pull that runs, or of a new one; `pull` is given what it tells its progress to.

        Raises what the pull raised, and Unavailable when it was cancelled by `close`.
        """
        import asyncio

        while (one := self._pulls.get(key)) is not None and one.waiting == 0:
            await asyncio.wait((one.task,))  # cancelled by its last waiter, not ended yet
            await asyncio.sleep(0)  # lets `_ended` run
        if one is None:
            one = self._pulls[key] = _Pull()
            one.task = asyncio.create_task(_run(one, pull), name=f"pull {key}")
            one.task.add_done_callback(lambda task: self._ended(key, task))
        if on_progress is not None:
            one.listeners.append(on_progress)
            on_progress(one.progress)
        one.waiting += 1
        try:
            return await asyncio.shield(one.task)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if caller is None or caller.cancelling():
                raise
            raise Unavailable(f"the pull of {key!r} was cancelled") from None
        finally:
            one.waiting -= 1
            if on_progress is not None:
                one.listeners.remove(on_progress)
            if one.waiting == 0 and not one.task.done():
                one.task.cancel()

    async def close(self) -> None:
        """Cancel everything that runs and wait for its end."""
        import asyncio

        tasks = [one.task for one in self._pulls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: str, task: asyncio.Task[T]) -> None:
        """Also of a task that was cancelled before it began."""
        del self._pulls[key]
        if not task.cancelled():
            task.exception()  # seen, even when everybody who waited was cancelled


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


async def _run(one: _Pull[T], pull: Callable[[OnProgress], Awaitable[T]]) -> T:
    return await pull(one.report)
