"""A runtime whose calls and streams raise KeyboardInterrupt and GeneratorExit."""

from __future__ import annotations

from collections.abc import AsyncIterator

from kubeletx.api import EventKind, RuntimeEvent, SandboxId, UnitId
from kubeletx.testing import FakeRuntime


class InterruptingRuntime(FakeRuntime):
    """Raises KeyboardInterrupt in `start_unit` and `events`, and GeneratorExit in `stop_sandbox`."""

    async def start_unit(self, unit_id: UnitId) -> None:
        """Raise KeyboardInterrupt."""
        raise KeyboardInterrupt

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Raise GeneratorExit."""
        raise GeneratorExit

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Raise KeyboardInterrupt instead of the first event."""
        if self.is_open:
            raise KeyboardInterrupt
        yield RuntimeEvent(kind=EventKind.RESYNC)
