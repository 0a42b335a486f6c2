"""`Connection`: opens a runtime, probes it, and keeps its state.

Each runtime has one task. A runtime that does not answer is opened again with back-off until it answers. The begin and
the end of an outage are logged once each, with one event each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast

import msgspec
import structlog

from kubeletx.api import (
    CAPABILITIES,
    Clock,
    Endpoint,
    EventSink,
    Internal,
    KubeletxError,
    ObjectRef,
    Runtime,
    RuntimeHealth,
    RuntimeVersion,
    Traits,
    Unavailable,
    names,
    sleep_or,
)
from kubeletx.api.backoff import Backoff

from ..plugins.failures import package_of
from ..plugins.required_methods import capability_problem
from .abandoned import plugin_function
from .calls import CallClass, CallGate
from .guarded import GuardedCalls
from .health import FAILED_PROBES, Health, RuntimeState, Silence, cordon, step
from .limits import Limits

log = structlog.get_logger(__name__)
T = TypeVar("T")

_QUICK_SECONDS = 1.0
"""Delay in seconds after which a failed probe is repeated."""


class Connection:
    """The connection to one runtime. `on_change`: called after every change of `state`.

    `judge`: returns the health that the runtime reported, changed to not ready if this node cannot use the runtime
    for a reason that the runtime does not know, such as another cgroup driver. `abandons`: see `CallGate`.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        endpoint: Endpoint,
        runtime: Runtime,
        clock: Clock,
        events: EventSink,
        limits: Limits,
        on_change: Callable[[], None],
        judge: Callable[[RuntimeHealth, Traits], RuntimeHealth],
        plugin: str = "",
        abandons: bool = True,
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
        self.guarded = GuardedCalls(
            endpoint.name,
            plugin=plugin,
            package=package_of(type(runtime).__module__),
            now_ns=lambda: int(clock.now().timestamp() * 1e9),
            monotonic=clock.monotonic,
        )
        self.gate = CallGate(endpoint.name, limits, self._refusal, self.guarded, abandons=abandons)
        self.reachable = asyncio.Event()
        self.opened = 0
        """Number of times that the runtime was opened; after each, capabilities and streams are new."""
        self.traits: Traits | None = None
        self.version: RuntimeVersion | None = None

    @property
    def state(self) -> RuntimeState:
        return self._health.state

    @property
    def answered_at(self) -> float | None:
        """Monotonic time of the last answer to a health call; None before the first."""
        return self._health.answered_at

    def cordon(self, cordoned: bool) -> None:
        """Set or lift the cordon, with which an operator keeps new pods off the runtime."""
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
        """Return the plugin's object that implements the capability `protocol`.

        The plugin's `capability` is called once for each protocol after each opening. None before the first opening, or if the plugin
        does not have the capability, or if its object lacks one of the methods.
        """
        if self.opened == 0:
            return None
        if protocol not in self._capabilities:
            self._capabilities[protocol] = self._query_capability(protocol)
        return cast("T | None", self._capabilities[protocol])

    async def run(self) -> None:
        """Open the runtime, probe it, and open it again after an outage, until cancelled.

        Only an answered health call resets the back-off: a runtime may accept a connection and never answer.
        """
        backoff = Backoff(0.25, self._limits.probe_interval_seconds)
        while True:
            self._poked.clear()
            if not self._opened and not await self._open():
                await self._clock.sleep(backoff.next())
                continue
            healthy = await self._probe()
            if not self.state.reachable or self._health.failures >= FAILED_PROBES:
                self._opened = False  # the connection may be broken, also during the grace period
                await self._clock.sleep(backoff.next())
                continue
            if healthy:
                backoff.reset()
                await sleep_or(self._clock, self._limits.probe_interval_seconds, self._poked)
                if self._poked.is_set():
                    await self._clock.sleep(0.2)  # if many calls fail together, one probe is enough
            else:
                await self._clock.sleep(_QUICK_SECONDS)

    def judge(self, health: RuntimeHealth) -> RuntimeHealth:
        """Return the reported health, changed by the `judge` of the constructor; unchanged before the first opening.

        While too many abandoned calls still run, the runtime is not ready.
        """
        if problem := self.gate.abandoned.problem():
            return msgspec.structs.replace(health, runtime_ready=False, message=problem)
        return self._judge(health, self.traits) if self.traits is not None else health

    async def close(self) -> None:
        """Close the connection, within a deadline; failures are only logged. `run` would open the runtime again."""
        self._opened = False
        try:
            await self.gate.call("close", CallClass.PROBE, self._limits.open_seconds, self._runtime.close)
        except KubeletxError as error:
            log.debug("Failed to close runtime", runtime=self._endpoint.name, err=str(error))

    # --- private ---

    def _run(self, method: str, function: Callable[[], T]) -> T:
        return self.guarded.run(method, lambda: plugin_function(self._endpoint.name, method, function))

    def _query_capability(self, protocol: type) -> object | None:
        try:
            capability: object | None = self._run("capability", lambda: self._runtime.capability(protocol))
            if problem := capability_problem(capability, protocol):
                raise Internal(f"{self.guarded.label}: {problem}")
        except KubeletxError as error:  # a fault of the plugin costs one capability
            log.error(
                "Failed to query a capability",
                runtime=self._endpoint.name,
                capability=protocol.__name__,
                err=str(error),
            )
            return None
        return capability

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
            self.traits = self._run("traits", self._runtime.traits)
        except KubeletxError as error:
            self._apply(_silence(error))
            return False
        self._opened = True
        self.opened += 1
        self.gate.abandoned.opened()
        self._capabilities.clear()
        for protocol in CAPABILITIES:
            self.capability(protocol)  # logs a faulty one now, and not at the first command that needs it
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
        """Log the begin of an outage, once for each outage."""
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
