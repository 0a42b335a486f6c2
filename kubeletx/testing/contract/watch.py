"""`LoopWatch`: finds a plugin that blocks the event loop during a test, interrupts it and says where it blocked.

A call with a time limit cannot end while the event loop does not run, so the limit alone would not help against
``time.sleep`` in a plugin. A task of the loop counts; a thread sees that the count does not change and sends a signal
to the main thread, whose handler raises `BlockedLoop` in the line that blocks. Code that no signal interrupts (a
library written in C) ends the whole test run, with the message.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import traceback
from collections.abc import AsyncIterator, Callable
from types import FrameType

TICK_SECONDS = 0.1
BLOCK_SECONDS = 2.0
"""Longest time for which a plugin may keep the event loop from running."""
GIVE_UP_SECONDS = 20.0
"""Time after which code that ignores the signal ends the test run."""
SIGNAL = signal.SIGUSR2


class BlockedLoop(BaseException):
    """A plugin blocked the event loop. No subclass of Exception, so that no plugin catches it by accident."""


class LoopWatch:
    """Watches one event loop from a thread while `running` is entered. `report`: message about the first block."""

    def __init__(self, end_run: Callable[[str], None]) -> None:
        """`end_run`: ends the test run with a message; called from the thread if the signal does not help."""
        self.report = ""
        self._end_run = end_run
        self._turns = 0
        self._stopped = threading.Event()

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Context manager: watch the running event loop during the block."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(self._count(), name="contract-loop-watch")
        thread = threading.Thread(target=self._look, args=(loop,), name="contract-loop-watch", daemon=True)
        interruptible = threading.current_thread() is threading.main_thread()
        before = signal.signal(SIGNAL, self._interrupt) if interruptible else None
        thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            thread.join()
            if interruptible:
                signal.signal(SIGNAL, before)
            task.cancel()
            await asyncio.wait([task])

    async def _count(self) -> None:
        while True:
            self._turns += 1
            await asyncio.sleep(TICK_SECONDS)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        seen, ticks = -1, 0
        while not self._stopped.wait(TICK_SECONDS):
            # Between two fixtures pytest runs no loop: that is no block.
            ticks = ticks + 1 if self._turns == seen and loop.is_running() else 0
            seen = self._turns
            blocked = ticks * TICK_SECONDS
            if blocked >= GIVE_UP_SECONDS:
                self._end_run(
                    f"the plugin blocks the event loop for more than {blocked:.0f} s; the run ends here"
                )
            elif ticks and ticks % round(BLOCK_SECONDS / TICK_SECONDS) == 0:
                signal.pthread_kill(threading.main_thread().ident or 0, SIGNAL)

    def _interrupt(self, _number: int, frame: FrameType | None) -> None:
        where = traceback.extract_stack(frame)[-1] if frame else None
        place = (
            f"{where.filename}:{where.lineno} in {where.name}: {where.line}" if where else "an unknown place"
        )
        text = (
            f"the plugin blocked the event loop for {BLOCK_SECONDS:g} s at {place}. While it waits there, the agent "
            "serves no other pod: await an asynchronous call, or pass the function to Host.blocking"
        )
        self.report = self.report or text
        raise BlockedLoop(text)


def end_process(text: str) -> None:
    """Write `text` to the error output and end the process with exit code 1."""
    os.write(2, f"\n{text}\n".encode())
    os._exit(1)
