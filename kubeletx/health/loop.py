"""The loop of the guardian's process: a tick whenever it is due, orders between ticks, until a signal ends it."""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread
from typing import Final

from kubeletx.linux.inotify import CHANGED, IN_DELETE, IN_MOVED_FROM, IN_ONLYDIR, InotifyQueue

from .guardian import Guardian
from .model import TICK_SECONDS
from .watchdog.ages import WatchLimits

SLOW_TICKS: Final = WatchLimits().hit // TICK_SECONDS
"""Ticks for which a slow disk may hold up the guardian: as long as an agent."""


@contextmanager
def showing_life(show_life: Callable[[], object], tick_seconds: float) -> Iterator[None]:
    """Call `show_life` every `tick_seconds` during the block, at most `SLOW_TICKS` times.

    The block flushes files: the hardware must not reset the node because a disk is slow, only if it hangs.
    """
    over = Event()

    def show() -> None:
        for _ in range(SLOW_TICKS):
            if over.wait(tick_seconds):
                return
            show_life()

    thread = Thread(target=show, name="signs of life", daemon=True)
    with suppress(RuntimeError):  # no thread can be started
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread.is_alive():
            thread.join()


def run_loop(guardian: Guardian, tick_seconds: float, show_life: Callable[[], object]) -> None:
    """Call `Guardian.tick` and `show_life` every `tick_seconds`, and `Guardian.hurry` when an order comes, until SIGTERM or SIGINT."""
    over: list[int] = []
    wake_read, wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda received, _: over.append(received))
    watches = _Watches(guardian)
    poll = select.poll()
    for descriptor in (watches.queue.descriptor, wake_read):
        poll.register(descriptor, select.POLLIN)
    due = time.monotonic()
    while not over:
        now = time.monotonic()
        if now >= due:
            with showing_life(show_life, tick_seconds):
                guardian.tick()
            show_life()
            # A process that was stopped does not catch up: late ticks are left out.
            due = max(due + tick_seconds, time.monotonic())
            continue
        ready = poll.poll((due - now) * 1000)
        if any(descriptor == watches.queue.descriptor for descriptor, _ in ready) and watches.read():
            with showing_life(show_life, tick_seconds):
                guardian.hurry()


class _Watches:
    """Directories of topics and orders in one queue. Topics are read at the next tick, orders at once."""

    def __init__(self, guardian: Guardian) -> None:
        self.queue = InotifyQueue()
        self._guardian = guardian
        self._orders = self.queue.watch_directory(str(guardian.orders.directory), CHANGED)
        self._watch()

    def read(self) -> bool:
        """Read the events, and return whether there may be an order."""
        events = self.queue.read()
        if any(event.watch != self._orders for event in events):
            self._guardian.inbox.reader.is_changed = True
            self._watch()
        return any(event.watch == self._orders or event.is_overflow for event in events)

    def _watch(self) -> None:
        """Watch directories that have appeared since. A watch ends with its directory."""
        for path in self._guardian.inbox.reader.directories():
            # The same directory again keeps its watch.
            with suppress(OSError):
                self.queue.watch_directory(str(path), CHANGED | IN_DELETE | IN_MOVED_FROM | IN_ONLYDIR)
