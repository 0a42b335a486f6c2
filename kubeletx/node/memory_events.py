"""Ends a wait early when tasks begin to stall for memory, by the kernel's pressure file (PSI).

    echo "some 150000 2000000" > /proc/pressure/memory; poll for POLLPRI
                                                        → 150 ms of stalls within 2 s

Without PSI, or without permission to write the file, only the timeout ends a wait. The trigger costs nothing
while memory is free. Source: the kernel's Documentation/accounting/psi.rst.
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
"""Minimum duration of a wait, so that a continuing stall does not end each one at once."""


class MemoryEvents:
    """Waits that end early when tasks begin to stall for memory; call `close` at the end."""

    def __init__(self, clock: Clock, *, path: Path = _PRESSURE) -> None:
        """`path`: the kernel's pressure file."""
        self._clock = clock
        self._stalled = asyncio.Event()
        self._file: int | None = None
        self._poll: select.epoll | None = None
        try:
            self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK)
            os.write(self._file, _TRIGGER)
            # An epoll of its own: asyncio cannot wait for priority data, but an epoll with news is readable.
            self._poll = select.epoll()
            self._poll.register(self._file, select.EPOLLPRI)
        except OSError:
            self.close()

    @property
    def is_watching(self) -> bool:
        """True if the kernel accepted the trigger; otherwise waits last their full time."""
        return self._poll is not None

    async def wait(self, seconds: float) -> None:
        """Return after `seconds`, or earlier when tasks stall for memory, but not within the first second."""
        if self._poll is None:
            await self._clock.sleep(seconds)
            return
        await self._clock.sleep(min(_SHORTEST_SECONDS, seconds))
        loop = asyncio.get_running_loop()
        self._stalled.clear()
        loop.add_reader(self._poll.fileno(), self._hear)
        cancel = self._clock.call_at(self._clock.monotonic() + seconds - _SHORTEST_SECONDS, self._stalled.set)
        try:
            await self._stalled.wait()
        finally:
            cancel()
            loop.remove_reader(self._poll.fileno())

    def close(self) -> None:
        """Remove the trigger from the kernel; waits then last their full time. Idempotent."""
        poll, self._poll = self._poll, None
        file, self._file = self._file, None
        if poll is not None:
            poll.close()
        if file is not None:
            os.close(file)

    def _hear(self) -> None:
        if self._poll is not None:
            self._poll.poll(0)
        self._stalled.set()
