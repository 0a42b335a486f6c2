"""`EventLoopWatchdog`: logs a stall of the event loop with the task and the stack that caused it.

A thread schedules a callback on the loop each second and takes the main thread's stack when the callback does not run
within 100 ms. The cost is one wake-up of the thread and one of the loop a second. The task's name says which callback
of which plugin blocks the loop (`agent.plugins.callbacks`).
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback

import structlog

log = structlog.get_logger(__name__)

ASK_SECONDS = 1.0
STALL_SECONDS = 0.1
DEAD_SECONDS = 60.0


class EventLoopWatchdog:
    """Detects stalls of the event loop. Made and used on the loop's thread."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = threading.get_ident()
        self._answered = threading.Event()
        self._closed = threading.Event()
        self._beat_at = time.monotonic()
        self.worst_seconds = 0.0
        self._thread = threading.Thread(target=self._watch, name="event-loop-watchdog", daemon=True)

    def start(self) -> None:
        """Start the thread that watches the event loop."""
        self._thread.start()

    def close(self) -> None:
        """Ask the thread to end; does not wait for it."""
        self._closed.set()

    @property
    def is_alive(self) -> bool:
        """Return True if the event loop has run within the last `DEAD_SECONDS`."""
        return time.monotonic() - self._beat_at < DEAD_SECONDS

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._answered.set()

    def _watch(self) -> None:
        while not self._closed.wait(ASK_SECONDS):
            self._answered.clear()
            asked = time.monotonic()
            try:
                self._loop.call_soon_threadsafe(self._beat)
            except RuntimeError:
                return  # the loop is closed
            if self._answered.wait(STALL_SECONDS):
                continue
            task, stack = self._task(), self._stack()
            self._answered.wait()
            stalled = time.monotonic() - asked
            self.worst_seconds = max(self.worst_seconds, stalled)
            log.warning(
                "Event loop stalled",
                elapsed_seconds=round(stalled, 3),
                task=task,
                where=_where(stack),
                stack=stack,
            )

    def _task(self) -> str:
        """Name of the task that the event loop runs now; empty if none runs."""
        task = asyncio.current_task(self._loop)
        return task.get_name() if task is not None else ""

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._main)
        return "".join(traceback.format_stack(frame)[-8:]) if frame is not None else ""


def _where(stack: str) -> str:
    """Line of the innermost stack frame in a plugin or in kubeletx; empty if there is none."""
    for line in reversed(stack.split("\n")):
        for mark in ("kubeletx_", "kubeletx/"):
            if mark in line:
                return line.strip()
    return ""
