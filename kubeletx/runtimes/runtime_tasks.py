"""`RuntimeTasks`: runs each runtime in a task of its own, and starts the task again when it fails.

failure ─► wait 1 s, then up to 60 s ─► start again     other runtimes are not affected
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from kubeletx.api import Clock, RuntimeName
from kubeletx.api.backoff import Backoff

from .handles.handle import RuntimeHandle

log = structlog.get_logger(__name__)

_STEADY_SECONDS = 300.0
"""A task that fails after running at least this long is restarted with the smallest delay again."""


class RuntimeTasks:
    """The tasks of all runtimes, in one TaskGroup."""

    def __init__(self, clock: Clock, beside: Callable[[RuntimeHandle], Coroutine[Any, Any, None]]) -> None:
        """`beside`: returns a coroutine that runs concurrently with the runtime, and ends and restarts together with it."""
        self._clock = clock
        self._beside = beside
        self._tasks: dict[RuntimeName, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    def begin(self, group: asyncio.TaskGroup) -> None:
        """Start the tasks in `group` from now on; before, `launch` does nothing."""
        self._group = group

    def end(self) -> None:
        """Forget the tasks, after the group has ended."""
        self._group = None
        self._tasks.clear()

    def launch(self, handle: RuntimeHandle) -> None:
        """Start the task of a runtime."""
        if self._group is not None:
            self._tasks[handle.name] = self._group.create_task(
                self._supervise(handle), name=f"runtime-{handle.name}"
            )

    async def stop(self, handle: RuntimeHandle) -> None:
        """Cancel the task of a runtime and wait until it has ended; does nothing without one."""
        task = self._tasks.pop(handle.name, None)
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    async def _supervise(self, handle: RuntimeHandle) -> None:
        backoff = Backoff(1.0, 60.0)
        while True:
            began = self._clock.monotonic()
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(handle.run(), name=f"runtime-{handle.name}-handle")
                    group.create_task(self._beside(handle), name=f"runtime-{handle.name}-beside")
            except* Exception as errors:
                if self._clock.monotonic() - began > _STEADY_SECONDS:
                    backoff.reset()
                delay = backoff.next()
                log.exception(
                    "Failed to run runtime; starting it again", runtime=handle.name, err=str(errors)
                )
                await self._clock.sleep(delay)
