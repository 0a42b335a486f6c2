"""Ends a wait early when tasks begin to stall for memory, by the kernel's pressure file (PSI).

The trigger ``some 150000 2000000``, written to /proc/pressure/memory, makes the file pollable (POLLPRI) when tasks
stalled for 150 ms within 2 s. It costs nothing while memory is free. Without PSI, or without permission to write the
file, only the timeout ends a wait. Source: the kernel's Documentation/accounting/psi.rst.
"""

from __future__ import annotations

import asyncio
import os
import select
from pathlib import Path
from typing import Final

from kubeletx.api import Clock

_TRIGGER: Final = b"some 150000 2000000\0"
_PRESSURE: Final = Path("/proc/pressure/memory")
_SHORTEST_SECONDS: Final = 1.0
"""Minimum duration of a wait, so that a continuing stall does not end every wait at once."""


def pressure_trigger(path: Path = _PRESSURE) -> int | None:
    """Return the pressure file with the trigger, which lasts while it is open; None if the kernel refuses it."""
    file = None
    try:
        file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
        os.write(file, _TRIGGER)
    except OSError:
        if file is not None:
            os.close(file)
        return None
    return file


class MemoryEvents:
    """Provides waits that end early when tasks begin to stall for memory; call `close` at the end."""

    def __init__(self, clock: Clock, trigger: int | None) -> None:
        """`trigger`: a file that has priority data when tasks stall; None: no wait ends early. `close` closes it."""
        self._clock = clock
        self._stalled = asyncio.Event()
        self._file = trigger
        self._poll: select.epoll | None = None
        if trigger is not None:
            # An epoll of its own: asyncio cannot wait for priority data, but an epoll with a pending event is readable.
            self._poll = select.epoll()
            self._poll.register(trigger, select.EPOLLPRI)

    @property
    def is_watching(self) -> bool:
        """True if the kernel accepted the trigger. If it did not, no wait ends early."""
        return self._poll is not None

    async def wait(self, seconds: float) -> None:
        """Wait `seconds`; return earlier if tasks stall for memory, but not within the first second."""
        if self._poll is None:
            await self._clock.sleep(seconds)
            return
        await self._clock.sleep(min(_SHORTEST_SECONDS, seconds))
        loop = asyncio.get_running_loop()
        # Still set by the end of the last wait.
        self._stalled.clear()
        loop.add_reader(self._poll.fileno(), self._hear)
        cancel = self._clock.call_at(self._clock.monotonic() + seconds - _SHORTEST_SECONDS, self._stalled.set)
        try:
            await self._stalled.wait()
        finally:
            cancel()
            loop.remove_reader(self._poll.fileno())

    def close(self) -> None:
        """Remove the trigger from the kernel; later waits do not end early. Idempotent."""
        poll, self._poll = self._poll, None
        file, self._file = self._file, None
        if poll is not None:
            poll.close()
        if file is not None:
            os.close(file)

    def _hear(self) -> None:
        if self._poll is not None:
            # Takes the event from the epoll: without this it would stay readable, and asyncio would call
            # again and again.
            self._poll.poll(0)
        self._stalled.set()
