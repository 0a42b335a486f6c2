"""A runtime whose event stream contains values that are no events."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from kubeletx.api import EventKind, RuntimeEvent, UnitId
from kubeletx.testing import FakeRuntime


class BadEventsRuntime(FakeRuntime):
    """Yields None, a string and an event with a bad id before its events."""

    async def events(self) -> AsyncIterator[Any]:
        """Yield what is no event, then the events."""
        for wrong in (None, "started", RuntimeEvent(kind=EventKind.STARTED, unit_id=UnitId("a/b"))):
            yield wrong
        async for event in super().events():
            yield event
