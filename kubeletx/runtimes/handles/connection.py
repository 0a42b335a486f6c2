"""`Connection`: opens a runtime, probes it, and keeps its state.

One task per runtime. A runtime that does not answer at the start, or stops answering, is tried again with back-off
without end. The begin and the end of an outage are one log line and one event each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar, cast

import structlog

from kubeletx.api import (
    Clock,
    Endpoint,
    EventSink,
    KubeletxError,
    ObjectRef,
    Runtime,
    RuntimeHealth,
    RuntimeVersion,
    Traits,
    Unavailable,
    names,
)
from kubeletx.api.backoff import Backoff

from ..host.waiting import sleep_or
from .calls import CallClass, CallGate
from .health import FAILED_PROBES, Health, RuntimeState, Silence, cordon, step
from .limits import Limits

log = structlog.get_logger(__name__)
T = TypeVar("T")

_QUICK_SECONDS = 1.0
"""Delay after which a failed probe is repeated."""


class Connection:
    """The connection to one runtime. `on_change`: called after every change of `state`.

    `judge`: returns the health that a runtime reported, not ready if this node has a reason of its own against it.
    """

    def __init__(
        self,
        *,
        endpoint: Endpoint,
        runtime: Runtime,
        clock: Clock,
        events: EventSink,
        limits: Limits,
        on_change: Callable[[], None],
        judge: Callable[[RuntimeHealth, Traits], RuntimeHealth],
    ) -> None:
        self._judge = judge
        self._endpoint = endpoint
        self._runtime = runtime
        self._clock = clock
        self._events = events
        self._limits = limits
        self._on_change = on_change
        self._health = Health(state=RuntimeState(since=clock.now()))
        self._opened = False
        self._complained = False
        self._lost_at: float | None = None
        self._poked = asyncio.Event()
        self._capabilities: dict[type, object | None] = {}
        self.gate = CallGate(endpoint.name, limits, self._refusal)
        self.reachable = asyncio.Event()
        self.opened = 0
        """Number of openings; a new number means new capabilities and streams."""
        self.traits: Traits | None = None
        self.version: RuntimeVersion | None = None

    @property
    def state(self) -> RuntimeState:
        """State of the runtime."""
        return self._health.state

    @property
    def heard_at(self) -> float | None:
        """Monotonic time of the last answer to a health call; None before the first."""
        return self._health.heard_at

    def cordon(self, cordoned: bool) -> None:
        """Set or lift the cordon: whether an operator wants no new pods on the runtime."""
        if self.state.cordoned != cordoned:
            self._health = cordon(self._health, cordoned)
            self._on_change()

    def require_reachable(self) -> None:
        """Raise Unavailable if the runtime does not answer now."""
        if (refusal := self._refusal()) is not None:
            raise refusal

    def poke(self) -> None:
        """Probe the runtime now instead of at the next interval; called after a call failed."""
        self._poked.set()

    def capability(self, protocol: type[T]) -> T | None:
        """The plugin's object for a capability as of the last opening; None before the first or if it has none."""
        if self.opened == 0:
            return None
        if protocol not in self._capabilities:
            try:
                self._capabilities[protocol] = self._runtime.capability(protocol)
            except Exception as error:  # noqa: BLE001 - a plugin's bug costs one capability
                log.error(
                    "Failed to query a capability",
                    runtime=self._endpoint.name,
                    capability=protocol.__name__,
                    err=str(error),
                )
                self._capabilities[protocol] = None
        return cast("T | None", self._capabilities[protocol])

    async def run(self) -> None:
        """Open the runtime, probe it, and open it again after an outage, until cancelled.

        Only an answered health call resets the back-off: a runtime may open and never answer.
        """
        backoff = Backoff(0.25, self._limits.probe_interval_seconds)
        while True:
            self._poked.clear()
            if not self._opened and not await self._open():
                await self._clock.sleep(backoff.next())
                continue
            healthy = await self._probe()
            if not self.state.reachable or self._health.failures >= FAILED_PROBES:
                self._opened = False  # the connection may be broken, also while the grace lasts
                await self._clock.sleep(backoff.next())
                continue
            if healthy:
                backoff.reset()
                await sleep_or(self._clock, self._limits.probe_interval_seconds, self._poked)
                if self._poked.is_set():
                    await self._clock.sleep(0.2)  # many calls fail together: one probe answers them all
            else:
                await self._clock.sleep(_QUICK_SECONDS)

    def judge(self, health: RuntimeHealth) -> RuntimeHealth:
        """Apply this node's own reasons to the health that the runtime reported; see the class."""
        return self._judge(health, self.traits) if self.traits is not None else health

    async def close(self) -> None:
        """Disconnect, within a deadline; failures are ignored. `run` opens the runtime again."""
        self._opened = False
        try:
            await self.gate.call("close", CallClass.PROBE, self._limits.open_seconds, self._runtime.close)
        except KubeletxError as error:
            log.debug("Failed to close runtime", runtime=self._endpoint.name, err=str(error))

    # --- private ---

    def _refusal(self) -> KubeletxError | None:
        if self.state.reachable:
            return None
        return Unavailable(
            f"runtime {self._endpoint.name} does not answer: {self.state.message}",
            reason=names.RUNTIME_NOT_READY,
        )

    async def _open(self) -> bool:
        try:
            await self.gate.call("open", CallClass.PROBE, self._limits.open_seconds, self._runtime.open)
            self.version = await self.gate.call(
                "version", CallClass.PROBE, self._limits.probe_seconds, self._runtime.version
            )
            self.traits = _sync(self._runtime.traits, self._endpoint.name)
        except KubeletxError as error:
            self._apply(_silence(error))
            return False
        self._opened = True
        self.opened += 1
        self._capabilities.clear()
        return True

    async def _probe(self) -> bool:
        try:
            answer = await self.gate.call(
                "health", CallClass.PROBE, self._limits.probe_seconds, self._runtime.health
            )
            outcome: RuntimeHealth | Silence = self.judge(answer)
        except KubeletxError as error:
            outcome = _silence(error)
        self._apply(outcome)
        return not isinstance(outcome, Silence)

    def _apply(self, outcome: RuntimeHealth | Silence) -> None:
        old = self.state
        wall, mono = self._clock.now(), self._clock.monotonic()
        grace = self._limits.health_grace_seconds
        self._health = step(self._health, outcome, wall=wall, mono=mono, grace_seconds=grace)
        new = self.state
        if new == old:
            if not new.reachable:
                self._complain(new)
            return
        if new.reachable:
            self.reachable.set()
        else:
            self.reachable.clear()
            self.gate.give_up_queries()
        self._tell(old, new, mono)
        self._on_change()

    def _complain(self, state: RuntimeState) -> None:
        """Log the begin of an outage; later failures are not logged."""
        if not self._complained:
            self._complained = True
            self._lost_at = self._clock.monotonic() if self._lost_at is None else self._lost_at
            log.warning(
                "Lost runtime" if self.opened else "Did not reach runtime; retrying",
                runtime=self._endpoint.name,
                url=self._endpoint.url,
                err=state.message,
            )

    def _tell(self, old: RuntimeState, new: RuntimeState, mono: float) -> None:
        name = self._endpoint.name
        if not new.reachable:
            self._complain(new)
        elif not old.reachable:
            lost_at, self._lost_at, self._complained = self._lost_at, None, False
            elapsed = {} if lost_at is None else {"elapsed_seconds": round(mono - lost_at, 3)}
            version = self.version.version if self.version else ""
            log.info("Reached runtime", runtime=name, kind=self._endpoint.kind, version=version, **elapsed)
        if (old.ready, old.network_ready) == (new.ready, new.network_ready):
            return
        if new.reachable and not (new.ready and new.network_ready):
            log.warning("Runtime reported not ready", runtime=name, reason=new.reason, err=new.message)
        elif new.reachable and old.reachable:
            log.info("Runtime reported ready again", runtime=name)
        ref = ObjectRef(kind="Runtime", name=name)
        if new.ready and new.network_ready:
            self._record(ref, "Normal", names.Event.RUNTIME_READY, f"Runtime {name} is ready")
        elif old.ready or new.reachable:
            self._record(
                ref, "Warning", names.Event.RUNTIME_NOT_READY, f"Runtime {name} is not ready: {new.message}"
            )

    def _record(self, ref: ObjectRef, kind: str, reason: str, message: str) -> None:
        self._events.record(ref, type=kind, reason=reason, message=message)


def _silence(error: KubeletxError) -> Silence:
    return Silence(reason=error.reason or type(error).__name__, message=error.message)


def _sync(function: Callable[[], Any], runtime: str) -> Any:
    try:
        return function()
    except KubeletxError:
        raise
    except Exception as error:
        raise Unavailable(f"runtime {runtime}: {function.__name__}: {error}") from error
