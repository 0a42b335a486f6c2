"""`Watch`: keeps a runtime's snapshots current, by its events if it has them and by lists otherwise.

Events cause an early read of a pod's state; lists find what events missed. All pods are listed after each subscription
to events (once immediately, and once when the subscription has surely taken effect), after each RESYNC, and after each
outage. While the event stream is open, further lists are minutes apart; without events they are a second apart. For a
minute after the runtime lost something that the agent had not removed, they are seconds apart, since the list may be wrong.

A stream with more than `EVENTS_PER_SECOND` events is closed, and opened again after 10 s or, if that happens again, after
up to 5 minutes. Meanwhile the runtime is listed each second, as one without events. Lists that a stream causes are also
a second apart on average, so that a runtime which sends RESYNC all the time is not listed all the time.

A list or stream that fails is usually a symptom of an outage, which `Connection` logs once. The failure itself is
logged only if the runtime has answered a health call since.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Awaitable, Callable

import structlog

from kubeletx.api import (
    Clock,
    EventKind,
    KubeletxError,
    RuntimeEvent,
    SupportsEvents,
    Unsupported,
    first_of,
    sleep_or,
)
from kubeletx.api.backoff import Backoff

from .abandoned import plugin_call
from .checked import wrong_event
from .connection import Connection
from .event_pacer import BurstLimit, ThrottleReport
from .event_tee import RESYNC, EventTee
from .guarded import GuardedStream
from .limits import Limits

log = structlog.get_logger(__name__)

_YIELD_EVERY = 200
"""Number of events after which other tasks run, even if the stream has more events ready."""
EVENTS_PER_SECOND = 1000.0
EVENTS_BURST = 12_000
"""Number of events that a stream may send at once; 2,000 pods that are stopped together cause about 10,000."""
LISTS_BURST = 3
"""Number of lists that may follow one another at once: after a connection, a subscription, and a RESYNC."""
_CALM_SECONDS = 60.0
"""Time that a stream stays open after which an earlier flood does not count any more."""

_LOST_SECONDS, _LOST_PAUSE_SECONDS = 60.0, 5.0
"""Time for which a loss makes lists more frequent, and the interval between these lists."""


class Watch:
    """Keeps one runtime's snapshots current.

    `take`: passes one event to the `EventFilter`. `relist`: lists all pods; raises KubeletxError if the runtime does
    not answer. `tee`: gets every event before `take`, and a RESYNC at the begin of each stream. `throttled`: counts
    and reports streams with too many events.
    """

    def __init__(
        self,
        *,
        name: str,
        connection: Connection,
        clock: Clock,
        limits: Limits,
        take: Callable[[RuntimeEvent], None],
        relist: Callable[[], Awaitable[None]],
        tee: EventTee,
        throttled: ThrottleReport,
    ) -> None:
        self._name = name
        self._connection = connection
        self._clock = clock
        self._limits = limits
        self._take = take
        self._relist = relist
        self._tee = tee
        self._throttled = throttled
        self._lost_at = -math.inf
        self._list_wanted = asyncio.Event()
        self._reopened = asyncio.Event()
        self._opened_seen = 0
        self.streaming = False
        """True while the event stream is open."""

    def connection_changed(self) -> None:
        """Handle a changed state of the connection: after a new opening, list all pods and restart the event stream."""
        if not self._connection.state.reachable:
            return
        if self._connection.opened != self._opened_seen:
            self._opened_seen = self._connection.opened
            self._reopened.set()
            self.want_list()

    def want_list(self) -> None:
        """Request a list of all pods soon; returns at once."""
        self._list_wanted.set()

    def note_loss(self) -> None:
        """Request lists soon, since the runtime no longer shows something that the agent has not removed."""
        self._lost_at = self._clock.monotonic()
        self.want_list()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_listing(), name=f"runtime-{self._name}-relist")
            group.create_task(self._keep_streaming(), name=f"runtime-{self._name}-events")

    # --- lists ---

    async def _keep_listing(self) -> None:
        backoff = Backoff(self._limits.relist_seconds, 10.0)
        trouble = _Trouble(self._connection, self._clock)
        lists = BurstLimit(1 / self._limits.relist_seconds, LISTS_BURST)
        while True:
            while not lists.take(self._clock.monotonic()):
                await self._clock.sleep(lists.wait_seconds(self._clock.monotonic()))
            await self._connection.reachable.wait()
            self._list_wanted.clear()
            try:
                await self._relist()
            except KubeletxError as error:
                if trouble.is_worth_a_line():
                    log.warning("Failed to list runtime", runtime=self._name, err=str(error))
                await self._clock.sleep(backoff.next())
                continue
            if trouble.end():
                log.info("Listed runtime again", runtime=self._name)
            backoff.reset()
            await sleep_or(self._clock, self._pause(), self._list_wanted)

    def _pause(self) -> float:
        if not self.streaming:
            return self._limits.relist_seconds
        if self._clock.monotonic() - self._lost_at < _LOST_SECONDS:
            return max(_LOST_PAUSE_SECONDS, self._limits.relist_seconds)
        return random.uniform(*self._limits.safety_relist_seconds)

    # --- events ---

    async def _keep_streaming(self) -> None:
        backoff, flood_backoff = Backoff(0.2, 10.0), Backoff(10.0, 300.0)
        trouble = _Trouble(self._connection, self._clock)
        while True:
            await self._connection.reachable.wait()
            self._reopened.clear()
            source = self._connection.capability(SupportsEvents)
            if source is None:
                await self._reopened.wait()
                continue
            began = self._clock.monotonic()
            error = await self._stream_until_reopened(source, trouble)
            if error is None:  # opened again: subscribe to the new connection immediately
                trouble.end()
                continue
            if isinstance(error, Unsupported):
                log.info("Runtime has no events; listing it instead", runtime=self._name, err=str(error))
                await self._reopened.wait()
                continue
            lasted = self._clock.monotonic() - began
            if lasted > _CALM_SECONDS:
                flood_backoff.reset()
            # Longer pauses than after an outage: a stream that floods again at once would keep the loop busy.
            if isinstance(error, _Flood):
                seconds = flood_backoff.next()
                self._throttled.closed(seconds)
                await sleep_or(self._clock, seconds, self._reopened)
                continue
            # A stream that breaks at once does not reset the back-off, also if it opened without an error.
            if lasted > self._limits.settle_seconds:
                backoff.reset()
            if not trouble.is_there:
                self._connection.poke()
            if trouble.is_worth_a_line():
                log.warning("Lost event stream of runtime", runtime=self._name, err=str(error))
            await sleep_or(self._clock, backoff.next(), self._reopened)

    async def _stream_until_reopened(self, source: SupportsEvents, trouble: _Trouble) -> Exception | None:
        """Read the event stream; return the error that ended it, or None if the runtime was opened again."""
        if (refusal := self._connection.gate.abandoned.refusal("events")) is not None:
            return refusal
        drain = asyncio.create_task(
            plugin_call(self._name, "events", lambda: self._drain(source, trouble)),
            name=f"runtime-{self._name}-stream",
        )
        try:
            await first_of(f"runtime-{self._name}-reopened", drain, self._reopened.wait())
            return drain.result() if drain.done() else None
        finally:
            self.streaming = False
            self.want_list()
            # Awaited before the next stream: two streams at once would deliver every event twice.
            await self._connection.gate.abandoned.end("events", drain)

    async def _drain(self, source: SupportsEvents, trouble: _Trouble) -> Exception:
        settle = asyncio.create_task(self._settle(trouble), name=f"runtime-{self._name}-settle")
        stream: GuardedStream[RuntimeEvent] | None = None
        task = asyncio.current_task()
        try:
            stream = self._connection.guarded.stream("events", source.events, wrong_event)
            self.streaming = True
            self.want_list()
            count = 0
            rate = BurstLimit(EVENTS_PER_SECOND, EVENTS_BURST)
            monotonic = self._clock.monotonic
            # Subscribers may have missed events between two streams.
            self._tee.put(RESYNC)
            async for event in stream:
                if task is not None and task.cancelling():
                    break  # the plugin swallowed the cancellation; another stream may be open already
                if not rate.take(monotonic()):
                    return _Flood("too many events")
                self._tee.put(event)
                if event.kind is EventKind.RESYNC:
                    self.want_list()
                else:
                    self._take(event)
                count += 1
                if count % _YIELD_EVERY == 0:
                    # A stream that always has an event ready never suspends, and would stop everything else
                    # on the loop.
                    await asyncio.sleep(0)
            return ConnectionError("the stream ended")
        except asyncio.CancelledError as error:
            if task is not None and task.cancelling():
                raise
            return ConnectionError(f"the stream was cancelled by the other side: {error}")
        except KubeletxError as error:
            return error
        except Exception as error:
            log.exception("Failed to process an event", runtime=self._name)
            return error
        finally:
            settle.cancel()
            await _close(stream)

    async def _settle(self, trouble: _Trouble) -> None:
        await self._clock.sleep(self._limits.settle_seconds)
        if trouble.end():
            log.info("Resumed event stream of runtime", runtime=self._name)
        self.want_list()


class _Flood(Exception):
    """The stream sent more events than the agent reads."""


class _Trouble:
    """Decides which results of a repeated operation are logged: one of a series of failures, and the next success."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._since: float | None = None
        self._opened = 0
        self._reported = False

    @property
    def is_there(self) -> bool:
        return self._since is not None

    def is_worth_a_line(self) -> bool:
        """Record a failure; return True if it should be logged, which happens once in a series of failures.

        A failure is logged only if the runtime has answered a health call since the first failure of the series.
        Otherwise it is part of an outage, which `Connection` logs.
        """
        if self._since is None or self._opened != self._connection.opened:
            self._since, self._opened = self._clock.monotonic(), self._connection.opened
        answered_at = self._connection.answered_at
        if (
            self._reported
            or answered_at is None
            or answered_at <= self._since
            or not self._connection.state.reachable
        ):
            return False
        self._reported = True
        return True

    def end(self) -> bool:
        """Record a success; return True if it should be logged, because a failure before it was logged."""
        reported, self._reported, self._since = self._reported, False, None
        return reported


async def _close(stream: GuardedStream[RuntimeEvent] | None) -> None:
    if stream is None:
        return
    try:
        async with asyncio.timeout(1.0):
            await stream.aclose()
    except (KubeletxError, TimeoutError) as error:
        log.debug("Failed to close an event stream", err=str(error))
