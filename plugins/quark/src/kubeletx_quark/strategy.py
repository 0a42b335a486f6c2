"""`Strategy`: a mechanism that freezes and thaws containers. Each mechanism is a file ``..._strategy.py``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from kubeletx.api import UnitId


class Strategy(Protocol):
    """Freezes and thaws the containers of one runtime.

    All methods raise NotFound if the container has no task, and Conflict if it is not running.
    """

    async def find_frozen(self, running: Callable[[], Awaitable[Iterable[UnitId]]]) -> Iterable[UnitId]:
        """Find the containers that are frozen, also those of earlier agent processes; may return foreign ones.

        `running`: returns the containers that CRI shows as running.
        """
        ...

    async def freeze(self, unit_id: UnitId) -> None:
        """Freeze the container; succeeds if it is frozen. After an error, it runs."""
        ...

    async def thaw(self, unit_id: UnitId) -> None:
        """Let the container continue; succeeds, without any effect, if it runs."""
        ...

    async def is_frozen(self, unit_id: UnitId) -> bool:
        """Return True if a container that this object froze or found frozen is still frozen; False for any other."""
        ...

    def forget(self, unit_id: UnitId) -> None:
        """Drop what is known about a container that is gone."""
        ...
