"""`RuntimeHandle`: the agent's access to one runtime, and one failure domain (rules 2 and 3 of docs/architecture.md).

    pods ──calls──▶ RuntimeHandle ──CallGate (deadline, limit, errors, counters)──▶ plugin's Runtime
      ▲                  ├── Connection   opens, probes; state, traits, version, capabilities
      └──── listener ────├── Watch        when to list, and the stream of events
                         ├── Relister     reads the state of one pod, or of all pods
                         └── SnapshotTable, EventFilter, EventPacer   last known states, which events are new

The methods of `kubeletx.api.Runtime` have the same names and meanings here. While the runtime is unreachable they raise
Unavailable at once, and the snapshots stay as they are. A unit is a container, or a virtual machine of a pod.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import structlog

from kubeletx.api import (
    Clock,
    Conflict,
    Endpoint,
    EventKind,
    EventSink,
    Internal,
    KubeletxError,
    NotFound,
    PodUid,
    Runtime,
    RuntimeEvent,
    RuntimeHealth,
    RuntimeName,
    RuntimeVersion,
    SandboxId,
    SandboxSpec,
    SandboxStatus,
    SandboxSummary,
    TimedOut,
    Traits,
    Unavailable,
    UnitId,
    UnitSpec,
    UnitStatus,
    UnitSummary,
    names,
)
from kubeletx.api.counting import Durations
from kubeletx.cri.tracing import in_span

from .calls import CallClass, CallCount
from .connection import Connection
from .event_filter import EventFilter
from .event_pacer import EventPacer, ThrottleReport
from .event_tee import EventSubscription, EventTee
from .health import RuntimeState
from .limits import Limits
from .relister import Relister
from .snapshot_table import SnapshotTable
from .snapshots import PodSnapshot
from .watching import Watch

log = structlog.get_logger(__name__)
T = TypeVar("T")


class RuntimeListener(Protocol):
    """Receiver of changes of runtimes and their pods. Its methods are called on the event loop and must not block."""

    def runtime_changed(self, name: RuntimeName) -> None:
        """Called when the runtime's state changed, when it was added or removed, and after its first complete list."""
        ...

    def pod_changed(self, name: RuntimeName, uid: PodUid, event: RuntimeEvent | None) -> None:
        """Called when the pod's state on the runtime may have changed.

        `event`: the event that reports the change; None if a list of all pods showed it.
        """
        ...


class RuntimeHandle:
    """The agent's access to one runtime: its state, its calls, and snapshots of its pods.

    `run` owns all of its tasks.
    """

    def __init__(  # noqa: PLR0913 - all by keyword
        self,
        *,
        endpoint: Endpoint,
        runtime: Runtime,
        agent_id: str,
        clock: Clock,
        events: EventSink,
        listener: RuntimeListener,
        limits: Limits | None = None,
        judge: Callable[[RuntimeHealth, Traits], RuntimeHealth] | None = None,
        plugin: str = "",
        abandons: bool = True,
    ) -> None:
        """`judge`: returns the health that the runtime reported, changed to not ready if this node cannot use the
        runtime; see `Connection`. None: the reported health is used as it is. `plugin`: see `GuardedCalls`. `abandons`:
        see `CallGate`.
        """
        limits = limits or Limits()
        self.endpoint = endpoint
        self._runtime = runtime
        self._clock = clock
        self._listener = listener
        self._limits = limits
        self._listed = asyncio.Event()
        self._table = SnapshotTable()
        self._throttled = ThrottleReport(str(endpoint.name), clock=clock, sink=events)
        self._pacer = EventPacer(self._news, clock=clock, held=self._throttled.held)
        self._filter = EventFilter(self._table, self._pacer.take, clock.monotonic)
        self._relister = Relister(
            self,
            table=self._table,
            events=self._filter,
            match={names.AGENT_ID: agent_id, names.RUNTIME_NAME: str(endpoint.name)},
            clock=clock,
        )
        self._connection = Connection(
            endpoint=endpoint,
            runtime=runtime,
            clock=clock,
            events=events,
            limits=limits,
            on_change=self._changed,
            judge=judge or _as_reported,
            plugin=plugin,
            abandons=abandons,
        )
        self._tee = EventTee()
        self._watch = Watch(
            name=endpoint.name,
            connection=self._connection,
            clock=clock,
            limits=limits,
            take=self._filter.take,
            relist=self._relist_quietly,
            tee=self._tee,
            throttled=self._throttled,
        )
        self._connection.gate.abandoned.on_end = self._watch.want_list

    def __repr__(self) -> str:
        return f"RuntimeHandle({self.name}, {self.endpoint.url})"

    def subscribe(self) -> EventSubscription:
        """Subscribe to all events of the runtime, including events of other clients' objects; see `event_tee`."""
        return self._tee.subscribe()

    # --- identity and state ---

    @property
    def name(self) -> RuntimeName:
        return self.endpoint.name

    @property
    def workload_type(self) -> str:
        return self.endpoint.workload_type

    @property
    def kind(self) -> str:
        return self.endpoint.kind

    @property
    def state(self) -> RuntimeState:
        return self._connection.state

    @property
    def traits(self) -> Traits | None:
        """Traits that the plugin declared at the last connection; None before the first."""
        return self._connection.traits

    @property
    def last_version(self) -> RuntimeVersion | None:
        return self._connection.version

    @property
    def is_listed(self) -> bool:
        """True once all pods of the runtime were listed, so that `pods` is complete."""
        return self._listed.is_set()

    @property
    def has_event_stream(self) -> bool:
        return self._watch.streaming

    @property
    def counts(self) -> Mapping[str, CallCount]:
        """Call counters of each method of the runtime that was called, by method name."""
        return self._connection.gate.counts

    @property
    def abandoned(self) -> Mapping[str, int]:
        """Number of calls that did not end at their deadline and still run, by method; see `AbandonableCalls`."""
        return self._connection.gate.abandoned.running

    @property
    def throttled_events(self) -> int:
        return self._throttled.events

    @property
    def relists(self) -> Durations:
        return self._relister.relists

    @property
    def relist_intervals(self) -> Durations:
        return self._relister.relist_intervals

    @property
    def opened(self) -> int:
        """Number of connections so far; after each new one the capabilities and the image store may differ."""
        return self._connection.opened

    def require_reachable(self) -> None:
        """Raise Unavailable if the runtime does not answer now."""
        self._connection.require_reachable()

    def capability(self, protocol: type[T]) -> T | None:
        """Return the plugin's object that implements one of the Supports... protocols.

        None if the plugin does not implement it, or before the first connection. Every call of the object is made with
        `change`, `ask`, `unlimited` or `stream`, since it may raise anything and return anything.
        """
        return self._connection.capability(protocol)

    def cordon(self, cordoned: bool) -> None:
        """Set or lift the cordon in memory; the caller saves it on disk."""
        self._connection.cordon(cordoned)

    # --- life ---

    async def run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._connection.run(), name=f"runtime-{self.name}-connection")
                group.create_task(self._watch.run(), name=f"runtime-{self.name}-watch")
        finally:
            self._pacer.close()
            await self._connection.close()

    async def wait_listed(self) -> None:
        """Wait until all pods of the runtime were listed once."""
        await self._listed.wait()

    # --- calls that change ---

    async def create_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Call `Runtime.create_sandbox` with twice the usual deadline."""
        self._filter.begin_create(spec.uid)
        try:
            sandbox_id = await self._change(
                "create_sandbox",
                lambda: self._runtime.create_sandbox(spec),
                seconds=2 * self._limits.request_seconds,
                call_class=CallClass.BEGINNING,
            )
            self._require_own("create_sandbox", sandbox_id, spec.uid)
            self._filter.expect(sandbox_id, EventKind.CREATED, EventKind.STARTED)
            self._register(sandbox_id, spec.uid)
        finally:
            self._filter.end_create(spec.uid)
        return sandbox_id

    async def stop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Call `Runtime.stop_sandbox`.

        The Stopped event that this causes is not reported: afterwards the caller uses `note_sandbox` or `look`.
        """
        with self._filter.acting([sandbox_id], EventKind.STOPPED):
            await self._change(
                "stop_sandbox",
                lambda: self._runtime.stop_sandbox(sandbox_id),
                find=lambda: self.sandbox_status(sandbox_id),
            )

    async def remove_sandbox(self, sandbox_id: SandboxId) -> None:
        ids = (sandbox_id, *self._table.units_in(sandbox_id))
        with self._filter.acting(ids, EventKind.STOPPED, EventKind.DELETED):
            await self._change(
                "remove_sandbox",
                lambda: self._runtime.remove_sandbox(sandbox_id),
                find=lambda: self.sandbox_status(sandbox_id),
            )
        self._filter.unexpect(sandbox_id)
        self._table.note_removed(sandbox_id, at=self._clock.monotonic())

    async def create_unit(self, sandbox_id: SandboxId, spec: UnitSpec, sandbox: SandboxSpec) -> UnitId:
        self._filter.begin_create(sandbox.uid)
        try:
            unit_id = await self._change(
                "create_unit", lambda: self._runtime.create_unit(sandbox_id, spec, sandbox)
            )
            self._require_own("create_unit", unit_id, sandbox.uid)
            self._filter.expect(unit_id, EventKind.CREATED)
            self._register(unit_id, sandbox.uid)
        finally:
            self._filter.end_create(sandbox.uid)
        return unit_id

    async def start_unit(self, unit_id: UnitId) -> None:
        """Call `Runtime.start_unit`.

        The Started event that this causes is not reported: afterwards the caller uses `note_unit` or `look`.
        """
        with self._filter.acting([unit_id], EventKind.STARTED):
            await self._change(
                "start_unit",
                lambda: self._runtime.start_unit(unit_id),
                find=lambda: self.unit_status(unit_id),
            )

    async def stop_unit(self, unit_id: UnitId, grace_seconds: float) -> None:
        """Call `Runtime.stop_unit`; the grace period is added to the deadline.

        The Stopped event that this causes is not reported: afterwards the caller uses `note_unit` or `look`.
        """
        with self._filter.acting([unit_id], EventKind.STOPPED):
            await self._change(
                "stop_unit",
                lambda: self._runtime.stop_unit(unit_id, grace_seconds),
                seconds=self._limits.request_seconds + grace_seconds,
                call_class=CallClass.STOPPING,
                find=lambda: self.unit_status(unit_id),
            )

    async def remove_unit(self, unit_id: UnitId) -> None:
        with self._filter.acting([unit_id], EventKind.DELETED):
            await self._change(
                "remove_unit",
                lambda: self._runtime.remove_unit(unit_id),
                find=lambda: self.unit_status(unit_id),
            )
        self._filter.unexpect(unit_id)
        self._table.note_removed(unit_id, at=self._clock.monotonic())

    async def change(
        self,
        method: str,
        start: Callable[[], Awaitable[T]],
        *,
        more_seconds: float = 0.0,
        unit_id: UnitId | None = None,
        changes: UnitId | None = None,
        is_switch: bool = False,
    ) -> T:
        """Make a changing call to the plugin's object for a capability, with deadline, limit and counters.

        `method`: name of the method, for messages and counters. `start`: makes the call. `more_seconds`: time for which
        the call waits by design, such as a grace period, added to the deadline. `unit_id`: the unit that the call is
        about; NotFound is then raised only if the runtime no longer has this unit. `changes`: the unit whose state the
        call changes; the Changed event that this causes is not reported: afterwards the caller uses `note_unit` or
        `look`. `is_switch`: the call freezes or thaws the unit within milliseconds; it does not wait for slow calls.
        """
        call_class = CallClass.STOPPING if more_seconds else CallClass.CHANGING
        if is_switch:
            call_class = CallClass.SWITCHING
        seconds = self._limits.request_seconds + more_seconds
        with self._filter.acting([] if changes is None else [changes], EventKind.CHANGED):
            return await self._change(
                method,
                start,
                seconds=seconds,
                call_class=call_class,
                find=None if unit_id is None else lambda: self.unit_status(unit_id),
            )

    # --- queries ---

    async def version(self) -> RuntimeVersion:
        return await self._query("version", self._runtime.version)

    async def health(self) -> RuntimeHealth:
        """Call `Runtime.health` now and return the answer, without the delays that `state` has after failures."""
        return self._connection.judge(await self._query("health", self._runtime.health))

    async def list_sandboxes(self, match: Mapping[str, str]) -> Sequence[SandboxSummary]:
        """Call `Runtime.list_sandboxes`: all sandboxes that match, including sandboxes of other agents."""
        return await self._query("list_sandboxes", lambda: self._runtime.list_sandboxes(match))

    async def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        return await self._query(
            "sandbox_status", lambda: self._runtime.sandbox_status(sandbox_id), sandbox_id
        )

    async def list_units(self, match: Mapping[str, str]) -> Sequence[UnitSummary]:
        return await self._query("list_units", lambda: self._runtime.list_units(match))

    async def unit_status(self, unit_id: UnitId, *, after_switch: bool = False) -> UnitStatus:
        """Call `Runtime.unit_status`. `after_switch`: the call waits until no freeze or thaw waits for a slot."""
        call_class = CallClass.SWITCHED if after_switch else CallClass.QUERY
        seconds = self._limits.query_seconds
        return await self._call(
            "unit_status", call_class, seconds, lambda: self._runtime.unit_status(unit_id), unit_id
        )

    async def ask(self, method: str, start: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
        """Make a reading call to the plugin's object for a capability, with deadline, limit and counters.

        `method`: name of the method, for messages and counters. `start`: makes the call. `seconds`: deadline; None for
        the deadline of queries.
        """
        return await self._call(method, CallClass.QUERY, seconds or self._limits.query_seconds, start)

    async def unlimited(self, method: str, start: Callable[[], Awaitable[T]]) -> T:
        """Make a call to the plugin's object for a capability, without deadline, limit and counters.

        For calls that take long by design, such as a pull. `method`, `start`: see `ask`.
        """
        return await in_span(method, partial(self._connection.guarded.call, method, start))()

    def stream(
        self, method: str, start: Callable[[], AsyncIterator[T]], wrong: Callable[[Any], str]
    ) -> AsyncIterator[T]:
        """Begin a stream of the plugin's object for a capability; it raises only KubeletxError and CancelledError.

        `wrong`: returns what is wrong with an item, which is then left out; empty if nothing is.
        """
        return self._connection.guarded.stream(method, start, wrong)

    # --- snapshots ---

    def snapshot(self, uid: PodUid) -> PodSnapshot | None:
        """Return the last snapshot of the pod; None if nothing of the pod is known on this runtime."""
        return self._table.find(uid)

    def looked_at(self, uid: PodUid) -> float:
        """Return the monotonic time at which the newest read of the pod's state began; 0 before the first.

        Both `look` and `relist` count.
        """
        return self._table.looked_at(uid)

    def pods(self) -> Mapping[PodUid, PodSnapshot]:
        """Return the snapshot of every pod of this agent on the runtime; a live, read-only view."""
        return self._table.pods

    def shows(self, uid: PodUid, event: RuntimeEvent) -> bool:
        """Return True if the pod's snapshot already contains the event's change (rule 9 of docs/architecture.md)."""
        return self._filter.shows(uid, event)

    async def look(self, uid: PodUid) -> PodSnapshot:
        """Read the state of one pod from the runtime now; return the new snapshot (empty if nothing is there).

        Raises KubeletxError if the runtime does not answer; then the old snapshot is kept.
        """
        before = self._table.lost_at
        snapshot = await self._relister.look(uid)
        if self._table.lost_at != before:
            self._watch.note_loss()
        return snapshot

    async def relist(self) -> None:
        """List all sandboxes and units of this agent, and report changed pods to the listener.

        Raises KubeletxError if the runtime does not answer; then all snapshots are kept.
        """
        before = self._table.lost_at
        changed = await self._relister.relist()
        if self._table.lost_at != before:
            self._watch.note_loss()
        first = not self._listed.is_set()
        self._listed.set()
        for uid in changed:
            self._listener.pod_changed(self.name, uid, None)
        if first:
            self._listener.runtime_changed(self.name)

    def note_sandbox(self, status: SandboxStatus) -> PodSnapshot:
        """Update the pod's snapshot with a sandbox's status after a call of this agent; return the new snapshot."""
        return self._table.note_sandbox(status, at=self._clock.monotonic())

    def note_unit(self, status: UnitStatus) -> PodSnapshot:
        """Update the pod's snapshot with a unit's status after a call of this agent; return the new snapshot."""
        return self._table.note_unit(status, at=self._clock.monotonic())

    def forget(self, uid: PodUid) -> None:
        """Drop the snapshot of a pod that has ended on this runtime."""
        self._table.forget(uid)
        self._pacer.forget(uid)

    # --- private ---

    def _changed(self) -> None:
        self._watch.connection_changed()
        self._listener.runtime_changed(self.name)

    def _news(self, uid: PodUid, event: RuntimeEvent) -> None:
        self._listener.pod_changed(self.name, uid, event)

    def _require_own(self, method: str, object_id: str, uid: PodUid) -> None:
        """Raise Internal if an id that the plugin returned for a new object belongs to another pod."""
        owner = self._table.owner_of(object_id)
        if owner is not None and owner != uid:
            raise Internal(
                f"{self._connection.guarded.label}: {method} returned the id {object_id!r}, which belongs to pod "
                f"{owner}; must be an id of pod {uid}",
                reason=names.PLUGIN_ERROR,
            )

    def _register(self, object_id: str, uid: PodUid) -> None:
        self._table.own(object_id, uid)
        self._filter.replay(object_id)

    async def _change(
        self,
        method: str,
        start: Callable[[], Awaitable[T]],
        *,
        seconds: float | None = None,
        call_class: CallClass = CallClass.CHANGING,
        find: Callable[[], Awaitable[object]] | None = None,
    ) -> T:
        """Make a changing call. `find`: query of the object that the call is about.

        A plugin may raise NotFound for something else, such as a disk; if `find` finds the object, it becomes Conflict.
        """
        try:
            return await self._call(method, call_class, seconds or self._limits.request_seconds, start)
        except NotFound as error:
            if find is None:
                raise
            try:
                await find()
            except NotFound:
                raise error from None
            raise Conflict(f"{method}: {error}; the runtime still has the object itself") from error

    async def _query(self, method: str, start: Callable[[], Awaitable[T]], asked: str | None = None) -> T:
        return await self._call(method, CallClass.QUERY, self._limits.query_seconds, start, asked)

    async def _call(
        self,
        method: str,
        call_class: CallClass,
        seconds: float,
        start: Callable[[], Awaitable[T]],
        asked: str | None = None,
    ) -> T:
        try:
            return await self._connection.gate.call(method, call_class, seconds, start, asked)
        except (Unavailable, TimedOut):
            self._connection.poke()
            raise

    async def _relist_quietly(self) -> None:
        try:
            await self.relist()
        except KubeletxError:
            raise
        except Exception as error:
            log.exception("Failed to apply a list", runtime=self.name)
            raise Unavailable(f"runtime {self.name}: {error}") from error


def _as_reported(health: RuntimeHealth, _traits: Traits) -> RuntimeHealth:
    return health
