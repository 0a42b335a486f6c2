"""`PauseEvents`: an event stream that notes which containers another program may have paused or resumed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import aclosing

from kubeletx.api import EventKind, RuntimeEvent, SupportsEvents, UnitId


class PauseEvents:
    """Event stream that passes on the events of another one unchanged. Implements `SupportsEvents`."""

    def __init__(self, stream: SupportsEvents, note: Callable[[UnitId], None]) -> None:
        """`note`: called with the id of each container that was paused or resumed, before its event is yielded."""
        self._stream = stream
        self._note = note

    async def events(self) -> AsyncIterator[RuntimeEvent]:
        """Yield the events of the stream. Raises Unavailable on disconnect."""
        async with aclosing(self._stream.events()) as events:  # type: ignore[type-var]
            async for event in events:
                if event.kind is EventKind.CHANGED and event.unit_id is not None:
                    self._note(event.unit_id)
                yield event
