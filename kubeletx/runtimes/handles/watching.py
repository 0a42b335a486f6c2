"""`Watch`: keeps a runtime's snapshots fresh, by its events if it has them and by lists otherwise.

Events make the next read of a pod's state come sooner; lists find what events missed. A list follows each subscription
to events (twice: one immediately, one when the subscription has surely taken effect), each RESYNC, and each outage.
While the event stream is open, further lists are minutes apart; without events they are a second apart.

A list or stream that fails is usually a symptom of an outage, which `Connection` logs in one line. The failure gets a
line of its own only if the runtime has answered its health call since.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import structlog

from kubeletx.api import Clock, EventKind, KubeletxError, RuntimeEvent, SupportsEvents, Unsupported
from kubeletx.api.backoff import Backoff

from ..host.waiting import sleep_or
from .connection import Connection
from .event_tee import RESYNC, EventTee
from .limits import Limits

log = structlog.get_logger(__name__)

_YIELD_EVERY = 200


class Watch:
    """Keeps one runtime's snapshots current. `take`: passes one event to the filter. `relist`: lists everything.

    `relist` raises if the runtime does not answer. `tee` gets every event before it is judged, and a RESYNC after each
    gap.
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
    ) -> None:
        self._name = name
        self._connection = connection
        self._clock = clock
        self._limits = limits
        self._take = take
        self._relist = relist
        self._tee = tee
        self._list_wanted = asyncio.Event()
        self._reopened = asyncio.Event()
        self._opened_seen = 0
        self.streaming = False
        """True while the event stream is open."""

    def connection_changed(self) -> None:
        """React to a changed state of the connection: once it was opened again, list everything, restart the stream."""
        if not self._connection.state.reachable:
            return
        if self._connection.opened != self._opened_seen:
            self._opened_seen = self._connection.opened
            self._reopened.set()
            self.want_list()

    def want_list(self) -> None:
        """Request a list of everything soon."""
        self._list_wanted.set()

    async def run(self) -> None:
        """List the runtime and follow its events, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_listing(), name=f"runtime-{self._name}-relist")
            group.create_task(self._keep_streaming(), name=f"runtime-{self._name}-events")

    # --- lists ---

    async def _keep_listing(self) -> None:
        backoff = Backoff(self._limits.relist_seconds, 10.0)
        trouble = _Trouble(self._connection, self._clock)
        while True:
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
        return random.uniform(*self._limits.safety_relist_seconds)

    # --- events ---

    async def _keep_streaming(self) -> None:
        backoff = Backoff(0.2, 10.0)
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
            if self._clock.monotonic() - began > self._limits.settle_seconds:
                backoff.reset()
            if not trouble.is_there:
                self._connection.poke()
            if trouble.is_worth_a_line():
                log.warning("Lost event stream of runtime", runtime=self._name, err=str(error))
            await sleep_or(self._clock, backoff.next(), self._reopened)

    async def _stream_until_reopened(self, source: SupportsEvents, trouble: _Trouble) -> Exception | None:
        """Run the stream; return the error that ended it, or None if it ended for a new connection."""
        drain = asyncio.create_task(self._drain(source, trouble), name=f"runtime-{self._name}-stream")
        reopened = asyncio.create_task(_wait(self._reopened), name=f"runtime-{self._name}-reopened")
        try:
            await asyncio.wait((drain, reopened), return_when=asyncio.FIRST_COMPLETED)
            return drain.result() if drain.done() else None
        finally:
            self.streaming = False
            self.want_list()
            for task in (drain, reopened):
                task.cancel()
            await asyncio.gather(drain, reopened, return_exceptions=True)

    async def _drain(self, source: SupportsEvents, trouble: _Trouble) -> Exception:
        settle = asyncio.create_task(self._settle(trouble), name=f"runtime-{self._name}-settle")
        stream: AsyncIterator[RuntimeEvent] | None = None
        try:
            stream = source.events()
            self.streaming = True
            self.want_list()
            count = 0
            self._tee.put(RESYNC)
            async for event in stream:
                self._tee.put(event)
                if event.kind is EventKind.RESYNC:
                    self.want_list()
                else:
                    self._take(event)
                count += 1
                if count % _YIELD_EVERY == 0:
                    await asyncio.sleep(0)
            return ConnectionError("the stream ended")
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return ConnectionError(f"the stream was cancelled by the other side: {error}")
        except Exception as error:  # noqa: BLE001 - the root of a plugin's stream
            return error
        finally:
            settle.cancel()
            await _close(stream)

    async def _settle(self, trouble: _Trouble) -> None:
        await self._clock.sleep(self._limits.settle_seconds)
        if trouble.end():
            log.info("Resumed event stream of runtime", runtime=self._name)
        self.want_list()


class _Trouble:
    """Decides which failures of a repeated operation are logged: the first one of a series, and the success that ends it."""

    def __init__(self, connection: Connection, clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._since: float | None = None
        self._opened = 0
        self._told = False

    @property
    def is_there(self) -> bool:
        """True after a failure until the next success."""
        return self._since is not None

    def is_worth_a_line(self) -> bool:
        """Record a failure; return True if it should be logged, once in a series of failures.

        That is when the runtime has answered its health call after the first failure.
        """
        if self._since is None or self._opened != self._connection.opened:
            self._since, self._opened = self._clock.monotonic(), self._connection.opened
        heard_at = self._connection.heard_at
        if self._told or heard_at is None or heard_at <= self._since or not self._connection.state.reachable:
            return False
        self._told = True
        return True

    def end(self) -> bool:
        """Record a success; return True if a failure before it was logged, so that the recovery should be too."""
        told, self._told, self._since = self._told, False, None
        return told


async def _wait(event: asyncio.Event) -> None:
    await event.wait()


async def _close(stream: Any) -> None:
    close = getattr(stream, "aclose", None)
    if close is None:
        return
    try:
        async with asyncio.timeout(1.0):
            await close()
    except Exception as error:  # noqa: BLE001 - a stream that is being given up
        log.debug("Failed to close an event stream", err=str(error))
