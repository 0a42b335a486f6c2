"""`ThrottleReport`: counts the events of a runtime that were throttled, and warns about them once in 10 minutes."""

from __future__ import annotations

import math

import structlog

from kubeletx.api import Clock, EventSink, ObjectRef, names

log = structlog.get_logger(__name__)

WARN_SECONDS = 600.0
NOTICED = 100
"""Number of events held back within `WARN_SECONDS` before the first warning: a short burst is no fault."""


class ThrottleReport:
    """Counts the events of one runtime that were held back or not read, and reports a flood of them.

    `events`: number of these events since the agent's start.
    """

    def __init__(self, runtime: str, *, clock: Clock, sink: EventSink) -> None:
        self._runtime = runtime
        self._clock = clock
        self._sink = sink
        self._warned_at = -math.inf
        self._since = -math.inf
        self._recent = 0
        self.events = 0

    def held(self, detail: str) -> None:
        """Count one event that was held back; warn if there are many. `detail`: names the event."""
        self.events += 1
        now = self._clock.monotonic()
        if now - self._since > WARN_SECONDS:
            self._since, self._recent = now, 0
        self._recent += 1
        if self._recent >= NOTICED:
            self._warn(
                f"runtime {self._runtime} reports more changes of pods than the agent reads; {detail}. Events "
                "that repeat one another are merged, and pods are read at most 10 times a second; see the log "
                "of the runtime or its plugin"
            )

    def closed(self, seconds: float) -> None:
        """Count the event for which a stream was closed, since it was above the limit, and warn.

        `seconds`: time until the stream is opened again.
        """
        self.events += 1
        self._warn(
            f"runtime {self._runtime} sent events faster than the agent reads them (more than 1,000 a second); "
            f"its event stream is closed for {seconds:g} s, and its pods are listed each second instead; see "
            "the log of the runtime or its plugin"
        )

    def _warn(self, message: str) -> None:
        now = self._clock.monotonic()
        if now - self._warned_at < WARN_SECONDS:
            return
        self._warned_at = now
        log.warning("Throttled events of runtime", runtime=self._runtime, events=self.events, err=message)
        ref = ObjectRef(kind="Runtime", name=self._runtime)
        self._sink.record(ref, type="Warning", reason=names.Event.RUNTIME_EVENTS_THROTTLED, message=message)
