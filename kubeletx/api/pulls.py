"""`SharedPulls`: one pull for all concurrent callers with the same image.

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
    """Running image pulls, each shared by all callers with the same key. The result of a pull is a `T`."""

    def __init__(self) -> None:
        """Begin without running pulls."""
        self._pulls: dict[str, _Pull[T]] = {}

    @property
    def keys(self) -> Collection[str]:
        """Keys of the running pulls; the view changes as pulls begin and end."""
        return self._pulls.keys()

    async def join(
        self, key: str, pull: Callable[[OnProgress], Awaitable[T]], on_progress: OnProgress | None = None
    ) -> T:
        """Wait for the running pull of this key, or start one, and return its result.

        `pull`: does the work; it gets a function for progress reports. `on_progress`: gets the present
        progress, then each report. Raises the pull's error, and Unavailable if `close` cancelled it.
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
        """Cancel all pulls and wait until they have ended. Their callers get Unavailable."""
        import asyncio

        tasks = [one.task for one in self._pulls.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, key: str, task: asyncio.Task[T]) -> None:
        """Forget a pull that has ended or was cancelled, even before it began."""
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
