"""`EventPacer`: limits the rate of the events that reach the pods' workers.

Each of these events causes one more read of its pod's state. A runtime that reports many changes of one pod would
otherwise be called all the time, and the other pods would wait. An event above the limit is held. A later event of the
same kind and object replaces it, and the events that a pod has then are passed on together.

    event ─► pod and runtime below their limits ─► passed on at once
          └► above ─► held ─► at most `POD_PER_SECOND` times a second: all events of the pod at once
"""

from __future__ import annotations

import math
from collections.abc import Callable

import structlog

from kubeletx.api import Clock, EventSink, ObjectRef, PodUid, RuntimeEvent, names

_ONE = 1 - 1e-6
"""Tokens that count as one: the end of `wait_seconds` never misses a token by a rounding error."""


class BurstLimit:
    """Permits `burst` uses at once, and after that `per_second` uses a second on average.

    Times are monotonic seconds.
    """

    __slots__ = ("_at", "_burst", "_per_second", "_tokens")

    def __init__(self, per_second: float, burst: float) -> None:
        self._per_second, self._burst = per_second, burst
        self._tokens, self._at = burst, 0.0

    def take(self, now: float) -> bool:
        """Use one token and return True; return False if there is none now."""
        self._refill(now)
        if self._tokens < _ONE:
            return False
        self._tokens -= 1
        return True

    def wait_seconds(self, now: float) -> float:
        """Return the seconds until a token is there; 0 if there is one now."""
        self._refill(now)
        return 0.0 if self._tokens >= _ONE else (1 - self._tokens) / self._per_second

    def _refill(self, now: float) -> None:
        if now > self._at:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
            self._at = now


Emit = Callable[[PodUid, RuntimeEvent], None]

POD_PER_SECOND = 10.0
POD_BURST = 20
"""Number of events of one pod that pass at once; the start of a pod with 5 containers causes about 15."""
RUNTIME_PER_SECOND = 200.0
RUNTIME_BURST = 2000
"""Number of events of one runtime that pass at once; 100 pods that start together cause about 600."""
MOST_HELD = 64
"""Maximum number of held events of one pod; the oldest are dropped first."""


class EventPacer:
    """Passes events of one runtime's pods to `emit`, at a limited rate.

    `held`: called with a text for the operator for each event that is not passed on at once.
    """

    def __init__(self, emit: Emit, *, clock: Clock, held: Callable[[str], None]) -> None:
        self._emit = emit
        self._clock = clock
        self._note_held = held
        self._runtime = BurstLimit(RUNTIME_PER_SECOND, RUNTIME_BURST)
        self._pods: dict[PodUid, BurstLimit] = {}
        self._held: dict[PodUid, dict[tuple[str | None, str], RuntimeEvent]] = {}
        self._cancel: Callable[[], None] | None = None

    def take(self, uid: PodUid, event: RuntimeEvent) -> None:
        """Pass the event on now, or hold it until the pod and the runtime are below their limits."""
        now = self._clock.monotonic()
        held = self._held.get(uid)
        if held is None:
            if self._may_pass(uid, now):
                self._emit(uid, event)
                return
            held = self._held[uid] = {}
        key = (event.unit_id or event.sandbox_id, event.kind.value)
        held.pop(key, None)
        held[key] = event
        if len(held) > MOST_HELD:
            del held[next(iter(held))]
        self._note_held(f"the last of them is {event.kind.value} of {key[0] or 'no object'}, pod UID {uid}")
        self._schedule(now)

    def forget(self, uid: PodUid) -> None:
        """Drop what is held for a pod that has ended."""
        self._pods.pop(uid, None)
        self._held.pop(uid, None)

    def close(self) -> None:
        """Drop all held events and cancel the timer; lists show what they report."""
        self._held.clear()
        if self._cancel is not None:
            self._cancel()
            self._cancel = None

    def _may_pass(self, uid: PodUid, now: float) -> bool:
        bucket = self._pods.get(uid)
        if bucket is None:
            bucket = self._pods[uid] = BurstLimit(POD_PER_SECOND, POD_BURST)
        if bucket.wait_seconds(now) > 0 or not self._runtime.take(now):
            return False
        return bucket.take(now)

    def _schedule(self, now: float) -> None:
        if self._cancel is None:
            self._cancel = self._clock.call_at(now + 1 / POD_PER_SECOND, self._flush)

    def _flush(self) -> None:
        self._cancel = None
        now = self._clock.monotonic()
        for uid in [uid for uid in self._held if self._may_pass(uid, now)]:
            for event in self._held.pop(uid, {}).values():
                self._emit(uid, event)
        if self._held:
            self._schedule(now)


log = structlog.get_logger(__name__)

WARN_SECONDS = 600.0
NOTICED = 100
"""Number of events held back within `WARN_SECONDS` before the first warning: a short burst is not a fault."""


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
