"""`Strategy`: a mechanism that freezes and thaws containers. Each mechanism is a file ``..._strategy.py``."""

from __future__ import annotations

from typing import Protocol

from kubeletx.api import UnitId


class Strategy(Protocol):
    """Freezes and thaws containers of one runtime.

    `freeze` and `thaw` raise NotFound if the container has no task, and Conflict if it is not running.
    """

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze the container; succeeds if it is frozen. After an error, it runs."""
        ...

    async def thaw(self, unit_id: UnitId) -> None:
        """Let the container continue; succeeds, without any effect, if it runs."""
        ...
