"""Work that may block, such as programs, disks and the network: each in a daemon thread of its own, with a deadline.

A tick starts work and takes results; it never waits. A thread cannot be stopped, so work that hangs keeps its one thread,
its late result is dropped, and the same work is not started a second time beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Generic, TypeVar

_T = TypeVar("_T")


class _Job(Generic[_T]):
    def __init__(self, name: str, work: Callable[[], _T], until: float) -> None:
        self.until = until
        self.results: list[_T] = []
        self.is_awaited = True
        self.is_late = False
        self._work = work
        self.thread = Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        self.results.append(self._work())


class Background(Generic[_T]):
    """Work by name, and its results. `clock`: seconds that only grow; deadlines are real time, also in fast motion."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._jobs: dict[str, _Job[_T]] = {}

    def start(self, name: str, work: Callable[[], _T], seconds: float) -> bool:
        """Start work, which must not raise. False: it still runs since the last time; its deadline is reported again."""
        if name in self._jobs:
            self._jobs[name].is_awaited = True
            return False
        job = self._jobs[name] = _Job(name, work, self._clock() + seconds)
        with suppress(RuntimeError):  # no thread can be started: it counts as late
            job.thread.start()
        return True

    def results(self) -> dict[str, _T | None]:
        """Return what has ended since the last call; None: its deadline is over."""
        results: dict[str, _T | None] = {}
        for name, job in list(self._jobs.items()):
            if not job.thread.is_alive():
                del self._jobs[name]
                if not job.is_late:
                    results[name] = job.results[0] if job.results else None
            elif self._clock() >= job.until and job.is_awaited:
                job.is_late, job.is_awaited = True, False
                results[name] = None
        return results

    @property
    def is_idle(self) -> bool:
        """True if no thread works."""
        return not any(job.thread.is_alive() for job in self._jobs.values())
