"""`SourceHealth`: reports pod sources whose task fails repeatedly, in ``/healthz`` and as an event.

A source that failed once and works after its restart is not reported. An unreachable or invalid manifest is not a
failure of the source's task: the source reports it itself and keeps its pods.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubeletx.api import Clock, EventSink, ObjectRef
from kubeletx.api.names import Event
from kubeletx.server.views import PartHealth

FORGET_SECONDS: Final = 120.0
"""Time without another failure after which a source counts as healthy again."""
REPEATED: Final = 2
"""Number of failures that make a source unhealthy, each within FORGET_SECONDS of the one before."""


class _Failing(msgspec.Struct):
    count: int
    last_at: float
    problem: str


class SourceHealth:
    """Counts the failures of each pod source's task, and reports repeated ones. Call it from the event loop only."""

    def __init__(self, *, clock: Clock, events: EventSink, node: ObjectRef) -> None:
        self._clock = clock
        self._events = events
        self._node = node
        self._failing: dict[str, _Failing] = {}

    def failed(self, name: str, error: Exception) -> None:
        """Record that the task of source `name` ended with this error; the caller restarts the task.

        A repeated failure is recorded as an event of the node.
        """
        now, problem = self._clock.monotonic(), f"{type(error).__name__}: {error}"
        known = self._failing.get(name)
        count = known.count + 1 if known is not None and now - known.last_at < FORGET_SECONDS else 1
        self._failing[name] = _Failing(count, now, problem)
        if count >= REPEATED:
            message = f"Pod source {name} fails repeatedly and delivers nothing: {problem}"
            self._events.record(self._node, type="Warning", reason=Event.FAILED_SOURCE, message=message)

    def problems(self) -> tuple[str, ...]:
        """Return one message for each pod source with several recent failures in a row, sorted by name."""
        now = self._clock.monotonic()
        return tuple(
            f"{name} failed {failure.count} times: {failure.problem}"
            for name, failure in sorted(self._failing.items())
            if failure.count >= REPEATED and now - failure.last_at < FORGET_SECONDS
        )

    def parts(self) -> tuple[PartHealth, ...]:
        """Return the health check ``sources`` for ``/healthz``: it fails if a source fails repeatedly now."""
        failing = self.problems()
        return (PartHealth(name="sources", ok=not failing, message="; ".join(failing)),)
