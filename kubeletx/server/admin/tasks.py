"""`Tasks`: completes changes even if their client disconnects."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import structlog

log = structlog.get_logger(__name__)

T = TypeVar("T")


class Tasks:
    """Runs each change in a task of its own, so that the change completes even if its request is cancelled."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def complete(self, change: Coroutine[Any, Any, T], name: str) -> T:
        """Run `change` and return its result.

        If the caller is cancelled, the change continues, and an error of it is logged. `name`: of the change, for
        the log.
        """
        task = asyncio.create_task(change, name=f"admin-{name}")
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.done():
                task.add_done_callback(_report)
            raise

    async def finish(self) -> None:
        """Wait until all changes in progress have ended."""
        if self._running:
            await asyncio.gather(*self._running, return_exceptions=True)


def _report(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and task.exception() is not None:
        log.warning(
            "Change failed after its client disconnected", task=task.get_name(), err=str(task.exception())
        )
