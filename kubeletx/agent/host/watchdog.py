"""`EventLoopWatchdog`: a thread that logs a stall of the event loop while it lasts, and reports a stall that is too long.

    each second   the thread schedules a callback on the event loop
    0.1 s late    the thread records task and stack of the code that blocks
    0.5 s late    it logs runtime, method, task and stack, and again after 1, 2, 4 … s
    limit         it calls `on_limit` once for each stall (see `agent.host.stall_limit`)
    the end       it logs how long the stall lasted

Nothing here needs the event loop or a lock that the blocked thread may hold: lines are written by threads of their own.
A process that was stopped by SIGSTOP does not count as a stall of that length.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import structlog

from kubeletx.runtimes.handles.abandoned import PluginCall, find_plugin_call

log = structlog.get_logger(__name__)

LOG_SECONDS = 0.5
LIMIT_SECONDS = 30.0
WRITE_SECONDS = 1.0
"""Longest wait in seconds for a log line to be written, since standard error may be blocked too."""
_STEP_SECONDS = 0.5
ADVICE = "add isolation=process to the runtime's URL, so that its plugin blocks only its own process"


class StallTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of the watchdog in seconds: between two callbacks, until a callback is late, until the loop counts as dead.

    `log_seconds`: duration of a stall after which it is logged while it lasts; then after each doubling.
    """

    ask_seconds: float = 1.0
    stall_seconds: float = 0.1
    log_seconds: float = LOG_SECONDS
    dead_seconds: float = 60.0


TIMES = StallTimes()


class LoopStall(msgspec.Struct, frozen=True, kw_only=True):
    """A stall of the event loop: how long it has lasted, and the code that blocks.

    `call`: the plugin's call that runs; None if none does. `task`: name of the task that runs; empty if none does.
    """

    seconds: float
    call: PluginCall | None
    task: str
    stack: str

    def fields(self) -> dict[str, Any]:
        """Return the fields of a log line about the stall."""
        return {
            "elapsed_seconds": round(self.seconds, 3),
            "runtime": self.call.runtime if self.call is not None else None,
            "method": self.call.method if self.call is not None else None,
            "task": self.task,
            "where": _where(self.stack),
            "advice": ADVICE if self.call is not None else None,
            "stack": self.stack,
        }


class EventLoopWatchdog:
    """Detects stalls of the event loop. Create and call it on the thread of the loop.

    `on_limit`: called on the watchdog's thread when a stall has lasted `limit_seconds`.
    """

    def __init__(
        self,
        *,
        limit_seconds: float = LIMIT_SECONDS,
        on_limit: Callable[[LoopStall], None] = lambda _: None,
        times: StallTimes = TIMES,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._main = threading.get_ident()
        self._limit_seconds = limit_seconds
        self._on_limit = on_limit
        self._times = times
        self._answered = threading.Event()
        self._closed = threading.Event()
        self._beat_at = time.monotonic()
        self.worst_seconds = 0.0
        self._thread = threading.Thread(target=self._watch, name="event-loop-watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """End the thread; does not wait for it."""
        self._closed.set()
        self._answered.set()

    @property
    def is_alive(self) -> bool:
        """True if the event loop has run within the last `dead_seconds`."""
        return time.monotonic() - self._beat_at < self._times.dead_seconds

    def _beat(self) -> None:
        self._beat_at = time.monotonic()
        self._answered.set()

    def _watch(self) -> None:
        while not self._closed.wait(self._times.ask_seconds):
            self._answered.clear()
            try:
                self._loop.call_soon_threadsafe(self._beat)
            except RuntimeError:
                return  # the loop is closed
            if not self._answered.wait(self._times.stall_seconds):
                self._follow(self._look(self._times.stall_seconds))

    def _follow(self, stall: LoopStall) -> None:
        """Log the stall while it lasts, report it at the limit, and log its end."""
        seconds, next_line, is_over = stall.seconds, self._times.log_seconds, False
        while not self._answered.is_set():
            until = next_line if is_over else min(next_line, self._limit_seconds)
            seconds += self._wait(min(max(until - seconds, 0.001), _STEP_SECONDS))
            if self._answered.is_set():
                break
            if seconds >= next_line:
                next_line *= 2
                stall = self._look(seconds)
                fields = stall.fields()
                write_line(partial(log.warning, "Event loop blocked", **fields))
            if not is_over and seconds >= self._limit_seconds:
                is_over = True
                stall = self._look(seconds)
                self._report(stall)
        if not self._closed.is_set():
            self.worst_seconds = max(self.worst_seconds, seconds)
            stall = msgspec.structs.replace(stall, seconds=seconds)
            write_line(lambda: log.warning("Event loop stalled", **stall.fields()))

    def _wait(self, step_seconds: float) -> float:
        """Wait for an answer of the loop; return the time waited, at most twice `step_seconds`.

        More time than that passes only while the whole process does not run.
        """
        began = time.monotonic()
        self._answered.wait(step_seconds)
        return min(time.monotonic() - began, 2 * step_seconds)

    def _report(self, stall: LoopStall) -> None:
        try:
            self._on_limit(stall)
        except Exception as error:  # noqa: BLE001 - the thread must continue to watch
            text = str(error)
            write_line(lambda: log.error("Failed to act on a stall of the event loop", err=text))

    def _look(self, seconds: float) -> LoopStall:
        """Return what the loop's thread does now. `seconds`: duration of the stall so far."""
        task = asyncio.current_task(self._loop)
        frame = sys._current_frames().get(self._main)
        return LoopStall(
            seconds=seconds,
            call=find_plugin_call(frame),
            task=task.get_name() if task is not None else "",
            stack="".join(traceback.format_stack(frame)[-8:]) if frame is not None else "",
        )


def write_line(write: Callable[[], object]) -> None:
    """Call `write`, which writes a log line, on a thread of its own, and wait for it at most `WRITE_SECONDS`.

    The blocked thread may hold the lock of standard error. Writes nothing if the interpreter is shutting down and
    refuses a new thread, as Python 3.12 and later do.
    """
    thread = threading.Thread(target=write, name="watchdog-line", daemon=True)
    try:
        thread.start()
    except RuntimeError:
        return
    thread.join(WRITE_SECONDS)


def _where(stack: str) -> str:
    """Return the line of the innermost stack frame in a plugin or in kubeletx; empty if there is none."""
    for line in reversed(stack.split("\n")):
        for mark in ("kubeletx_", "kubeletx/"):
            if mark in line:
                return line.strip()
    return ""
