"""State behind a `FakeRuntime`: sandboxes, units, images and subscribers to events.

It simulates the runtime's daemon, which keeps running when the agent restarts. To simulate such a restart, a test makes
a new `FakeRuntime` over the same `FakeBackend`. Tests also act on the backend directly: `exit_unit`, `vanish_unit`,
`write_log`. Nothing here waits; every change is one synchronous step.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from kubeletx.api import (
    Clock,
    EventKind,
    ImageSpec,
    ImageStatus,
    Machine,
    NamespaceMode,
    Nic,
    NicStatus,
    NotFound,
    PodUid,
    Resources,
    RuntimeEvent,
    SandboxId,
    SandboxSpec,
    SandboxState,
    SandboxStatus,
    SandboxSummary,
    SnapshotStatus,
    UnitId,
    UnitSpec,
    UnitState,
    UnitStatus,
    UnitSummary,
    matching,
    names,
)

EVENT_BUFFER = 100_000
"""Maximum number of events that are queued for a subscriber that does not read.

Further events are dropped, and one RESYNC event replaces them.
"""


@dataclass(frozen=True, kw_only=True)
class Behaviour:
    """Behaviour of a unit after its start.

    `runs_seconds`: the unit exits with `exit_code` after this time on the clock; None: it runs until it is
    stopped. `ignores_stop`: it ignores the stop signal and exits only when it is killed. `stop_seconds`: time
    from the stop signal to its exit; `stop_exit_code`: exit code in that case. `stdout`, `stderr`: lines that
    it prints at its start. `cpu_nano_cores`, `memory_bytes`: usage that it reports.
    """

    runs_seconds: float | None = None
    exit_code: int = 0
    ignores_stop: bool = False
    stop_seconds: float = 0.0
    stop_exit_code: int = 143
    stdout: bytes = b""
    stderr: bytes = b""
    cpu_nano_cores: int = 1_000_000
    memory_bytes: int = 1 << 20


RUNS_FOREVER = Behaviour()


@dataclass(slots=True, eq=False)
class FakeSandbox:
    """State of one sandbox in a `FakeBackend`. `spec`: None if the backend does not keep specs.

    `units`: ids of the sandbox's units by name and attempt.
    """

    summary: SandboxSummary
    spec: SandboxSpec | None
    ip: str
    host_network: bool
    log_directory: str
    units: dict[tuple[str, int], UnitId] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class FakeUnit:
    """State of one unit in a `FakeBackend`. `spec`: None if the backend does not keep specs."""

    summary: UnitSummary
    spec: UnitSpec | None
    behaviour: Behaviour
    log_path: str
    is_machine: bool
    started_at_ns: int = 0
    finished_at_ns: int = 0
    since_ns: int = 0
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    restarts: int = 0
    was_started: bool = False
    resources: Resources | None = None
    log: bytearray = field(default_factory=bytearray)
    task: asyncio.Task[None] | None = None
    nics: dict[str, NicStatus] = field(default_factory=dict)
    snapshots: dict[str, SnapshotStatus] = field(default_factory=dict)
    snapshot_states: dict[str, UnitState] = field(default_factory=dict)
    current_snapshot: str = ""


class FakeBackend:
    """State of a simulated runtime daemon. Several `FakeRuntime` objects may use it, one after another."""

    def __init__(
        self,
        *,
        clock: Clock,
        behave: Callable[[UnitSpec], Behaviour] = lambda _spec: RUNS_FOREVER,
        registry: Mapping[str, int] | None = None,
        keep_specs: bool = True,
    ) -> None:
        """`behave`: returns the behaviour of a unit from its spec; the default units run until they are stopped.

        `registry`: names of the images that can be pulled, with their sizes in bytes; None: every image, with a
        size of 1 MiB. `keep_specs` False: do not keep specs, to save memory in benchmarks.
        """
        self.clock = clock
        self.behave = behave
        self.registry = registry
        self.keep_specs = keep_specs
        self.alive = True
        self.sandboxes: dict[SandboxId, FakeSandbox] = {}
        self.units: dict[UnitId, FakeUnit] = {}
        self.images: dict[str, ImageStatus] = {}
        self._keys: dict[tuple[PodUid, int], SandboxId] = {}
        self._by_pod: dict[str, dict[str, None]] = {}
        self._ids = itertools.count(1)
        self._addresses = itertools.count(2)
        self._macs = itertools.count(1)
        self._subscribers: list[Subscription] = []

    # --- what a test does to the daemon ---

    def find_unit(self, name: str, *, pod: str = "") -> UnitId:
        """Return the id of the newest unit called `name`. `pod`: name of its pod; empty: any pod.

        Raises NotFound.
        """
        for unit_id, unit in reversed(self.units.items()):
            sandbox = self.sandboxes[unit.summary.sandbox_id]
            if unit.summary.name == name and pod in ("", sandbox.summary.name):
                return unit_id
        raise NotFound(f"no unit {name!r} in pod {pod or '(any)'!r}")

    def exit_unit(self, unit_id: UnitId, exit_code: int = 0, *, reason: str = "") -> None:
        """End the unit, as if its process had exited; does nothing if the unit does not run.

        `reason`: such as OOMKilled; empty: Completed or Error, by the exit code.
        """
        unit = self.unit(unit_id)
        if not unit.summary.state.is_alive:
            return
        self._cancel_timer(unit)
        unit.exit_code = exit_code
        unit.reason = reason or ("Completed" if exit_code == 0 else "Error")
        unit.finished_at_ns = self.now_ns()
        self.set_state(
            unit_id, UnitState.EXITED, EventKind.OOM if reason == "OOMKilled" else EventKind.STOPPED
        )

    def vanish_unit(self, unit_id: UnitId) -> None:
        """Remove the unit without an event, as if it had never existed."""
        unit = self.units.pop(unit_id, None)
        if unit is not None:
            self._cancel_timer(unit)
            self._unindex(unit_id, unit.summary.labels)
            sandbox = self.sandboxes[unit.summary.sandbox_id]
            sandbox.units.pop((unit.summary.name, unit.summary.attempt), None)

    def fail_sandbox(self, sandbox_id: SandboxId) -> None:
        """Kill the units in the sandbox, and set the sandbox's state to NOT_READY."""
        for unit_id in list(self.sandbox(sandbox_id).units.values()):
            self.exit_unit(unit_id, 137)
        self.set_sandbox_state(sandbox_id, SandboxState.NOT_READY)

    def write_log(self, unit_id: UnitId, data: bytes, *, stream: str = "stdout") -> None:
        """Add output of the unit to its log for `FakeRuntime.log_stream`, and to its CRI log file if it has one."""
        unit = self.unit(unit_id)
        unit.log += data
        if not unit.log_path:
            return
        path = Path(unit.log_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            for line in data.splitlines():
                file.write(f"{cri_time(self.clock.now())} {stream} F ".encode() + line + b"\n")

    def add_image(self, name: str, *, size_bytes: int = 1 << 20, user: int | None = None) -> ImageStatus:
        """Put an image into the store; returns its status. `user`: user id in the image's configuration; None: none."""
        image_id = "sha256:" + hashlib.sha256(name.encode()).hexdigest()
        status = ImageStatus(id=image_id, ref=image_id, tags=(name,), size_bytes=size_bytes, user=user)
        self.images[image_id] = status
        return status

    def kill(self) -> None:
        """Simulate a crash of the daemon: calls raise Unavailable and event streams end; units keep running."""
        self.alive = False
        for subscriber in list(self._subscribers):
            subscriber.end()

    def revive(self) -> None:
        """Start the daemon again after `kill`."""
        self.alive = True

    # --- what the runtime does ---

    def now_ns(self) -> int:
        """Return the clock's time in nanoseconds since the epoch."""
        return int(self.clock.now().timestamp() * 1_000_000) * 1000

    def sandbox(self, sandbox_id: SandboxId) -> FakeSandbox:
        """Return the state of the sandbox. Raises NotFound."""
        try:
            return self.sandboxes[sandbox_id]
        except KeyError:
            raise NotFound(f"no sandbox {sandbox_id}") from None

    def unit(self, unit_id: UnitId) -> FakeUnit:
        """Return the state of the unit. Raises NotFound."""
        try:
            return self.units[unit_id]
        except KeyError:
            raise NotFound(f"no unit {unit_id}") from None

    def find_sandboxes(self, match: Mapping[str, str]) -> list[SandboxSummary]:
        """Return the sandboxes whose labels contain every pair of `match`.

        The pod's UID in `match` makes the search fast.
        """
        if names.POD_UID in match:
            ids = [SandboxId(key) for key in self._by_pod.get(match[names.POD_UID], ())]
            sandboxes = [self.sandboxes[key] for key in ids if key in self.sandboxes]
        else:
            sandboxes = list(self.sandboxes.values())
        return matching((sandbox.summary for sandbox in sandboxes), match)

    def find_units(self, match: Mapping[str, str]) -> list[UnitSummary]:
        """Return the units whose labels contain every pair of `match`.

        The pod's UID in `match` makes the search fast.
        """
        if names.POD_UID in match:
            ids = [UnitId(key) for key in self._by_pod.get(match[names.POD_UID], ())]
            units = [self.units[key] for key in ids if key in self.units]
        else:
            units = list(self.units.values())
        return matching((unit.summary for unit in units), match)

    def find_image(self, image: ImageSpec) -> ImageStatus | None:
        """Return the image that matches `image` by its reference, id, tag or digest; None if there is none."""
        for status in self.images.values():
            names = (status.id, status.ref, *status.tags, *status.digests)
            if image.ref in names or image.requested in names:
                return status
        return None

    def add_sandbox(self, spec: SandboxSpec) -> SandboxId:
        """Create a ready sandbox, unless one with the same pod UID and attempt exists; returns the sandbox's id."""
        key = (spec.uid, spec.attempt)
        if key in self._keys:
            return self._keys[key]
        number = next(self._ids)
        sandbox_id = SandboxId(f"sandbox-{number:06d}")
        host_network = spec.namespaces.network is NamespaceMode.NODE
        address = 0 if host_network else next(self._addresses)
        self.sandboxes[sandbox_id] = FakeSandbox(
            summary=SandboxSummary(
                id=sandbox_id,
                uid=spec.uid,
                name=spec.name,
                namespace=spec.namespace,
                attempt=spec.attempt,
                state=SandboxState.READY,
                created_at_ns=self.now_ns(),
                handler=spec.handler,
                labels=spec.labels,
                annotations=spec.annotations,
            ),
            spec=spec if self.keep_specs else None,
            ip="" if host_network else f"10.{88 + (address >> 16)}.{address >> 8 & 255}.{address & 255}",
            host_network=host_network,
            log_directory=spec.log_directory,
        )
        self._keys[key] = sandbox_id
        self._index(sandbox_id, spec.labels)
        self.emit(EventKind.STARTED, spec.uid, sandbox_id)
        return sandbox_id

    def add_unit(self, sandbox_id: SandboxId, spec: UnitSpec) -> UnitId:
        """Create a unit, unless one with the same sandbox, name and attempt exists; returns the unit's id."""
        sandbox = self.sandbox(sandbox_id)
        key = (spec.name, spec.attempt)
        if key in sandbox.units:
            return sandbox.units[key]
        unit_id = UnitId(f"unit-{next(self._ids):06d}")
        image = self.find_image(spec.image)
        self.units[unit_id] = FakeUnit(
            summary=UnitSummary(
                id=unit_id,
                sandbox_id=sandbox_id,
                uid=sandbox.summary.uid,
                name=spec.name,
                attempt=spec.attempt,
                state=UnitState.CREATED,
                created_at_ns=self.now_ns(),
                image=spec.image.requested,
                image_id=image.id if image else "",
                labels=spec.labels,
                annotations=spec.annotations,
            ),
            spec=spec if self.keep_specs else None,
            behaviour=self.behave(spec),
            log_path=f"{sandbox.log_directory}/{spec.log_path}"
            if sandbox.log_directory and spec.log_path
            else "",
            is_machine=isinstance(spec.detail, Machine),
            resources=spec.resources,
        )
        if isinstance(spec.detail, Machine):
            self.units[unit_id].nics = self._first_nics(sandbox, spec.detail)
        sandbox.units[key] = unit_id
        self._index(unit_id, spec.labels)
        self.emit(EventKind.CREATED, sandbox.summary.uid, sandbox_id, unit_id)
        return unit_id

    def nic_status(self, nic: Nic, ips: tuple[str, ...] = ()) -> NicStatus:
        """Return the status of a network interface, with a generated MAC. `ips`: used if `nic` has no address."""
        return NicStatus(
            name=nic.name,
            mac=f"52:54:00:00:00:{next(self._macs) % 256:02x}",
            network=nic.network,
            port_id=nic.port_id,
            ips=(nic.ip_address,) if nic.ip_address else ips,
        )

    def _first_nics(self, sandbox: FakeSandbox, machine: Machine) -> dict[str, NicStatus]:
        wanted = {nic.name: nic for nic in machine.nics}
        first = wanted.pop("eth0", Nic(name="eth0"))
        ips = (sandbox.ip,) if sandbox.ip else ()
        return {"eth0": self.nic_status(first, ips), **{n: self.nic_status(nic) for n, nic in wanted.items()}}

    def start_unit(self, unit_id: UnitId) -> None:
        """Start a created unit, or a machine that is off. From now on the unit follows its `Behaviour`."""
        unit = self.unit(unit_id)
        unit.started_at_ns = self.now_ns()
        unit.exit_code, unit.reason, unit.finished_at_ns = None, "", 0
        power = unit.spec.detail.power if unit.spec and isinstance(unit.spec.detail, Machine) else ""
        state = UnitState.PAUSED if power == "paused" and not unit.was_started else UnitState.RUNNING
        unit.was_started = True
        self.set_state(unit_id, state, EventKind.STARTED)
        for stream, data in (("stdout", unit.behaviour.stdout), ("stderr", unit.behaviour.stderr)):
            if data:
                self.write_log(unit_id, data, stream=stream)
        if unit.behaviour.runs_seconds is not None:
            unit.task = asyncio.get_running_loop().create_task(
                self._run_out(unit_id, unit.behaviour.runs_seconds), name=f"fake-unit-{unit_id}"
            )

    def drop_unit(self, unit_id: UnitId) -> None:
        """Remove a unit and emit a DELETED event; does nothing if there is no such unit."""
        if unit_id in self.units:
            summary = self.units[unit_id].summary
            self.vanish_unit(unit_id)
            self.emit(EventKind.DELETED, summary.uid, summary.sandbox_id, unit_id)

    def drop_sandbox(self, sandbox_id: SandboxId) -> None:
        """Remove a sandbox and its units, and emit a DELETED event for each.

        Does nothing if there is no such sandbox.
        """
        sandbox = self.sandboxes.get(sandbox_id)
        if sandbox is None:
            return
        for unit_id in list(sandbox.units.values()):
            self.drop_unit(unit_id)
        del self.sandboxes[sandbox_id]
        self._unindex(sandbox_id, sandbox.summary.labels)
        del self._keys[(sandbox.summary.uid, sandbox.summary.attempt)]
        self.emit(EventKind.DELETED, sandbox.summary.uid, sandbox_id)

    def set_state(self, unit_id: UnitId, state: UnitState, kind: EventKind = EventKind.CHANGED) -> None:
        """Change a unit's state and emit an event of kind `kind`."""
        unit = self.unit(unit_id)
        unit.since_ns = self.now_ns()
        unit.summary = msgspec.structs.replace(unit.summary, state=state)
        self.emit(kind, unit.summary.uid, unit.summary.sandbox_id, unit_id)

    def set_sandbox_state(self, sandbox_id: SandboxId, state: SandboxState) -> None:
        """Change a sandbox's state and emit STARTED or STOPPED; does nothing if it already has that state."""
        sandbox = self.sandbox(sandbox_id)
        old = sandbox.summary
        if old.state is state:
            return
        sandbox.summary = msgspec.structs.replace(old, state=state)
        self.emit(
            EventKind.STOPPED if state is SandboxState.NOT_READY else EventKind.STARTED, old.uid, old.id
        )

    def sandbox_status(self, sandbox_id: SandboxId) -> SandboxStatus:
        """Return the status of one sandbox. The status has an IP address only while the sandbox is ready."""
        sandbox = self.sandbox(sandbox_id)
        ready = sandbox.summary.state is SandboxState.READY
        return SandboxStatus(
            summary=sandbox.summary,
            ips=(sandbox.ip,) if ready and sandbox.ip else (),
            host_network=sandbox.host_network,
        )

    def unit_status(self, unit_id: UnitId) -> UnitStatus:
        """Return the status of one unit."""
        unit = self.unit(unit_id)
        return UnitStatus(
            summary=unit.summary,
            started_at_ns=unit.started_at_ns,
            finished_at_ns=unit.finished_at_ns,
            since_ns=unit.since_ns,
            exit_code=unit.exit_code,
            reason=unit.reason,
            message=unit.message,
            log_path=unit.log_path,
            image_ref=unit.summary.image_id,
            restarts=unit.restarts,
            resources=granted(unit.resources),
        )

    # --- events ---

    def emit(
        self,
        kind: EventKind,
        uid: PodUid | None,
        sandbox_id: SandboxId | None = None,
        unit_id: UnitId | None = None,
    ) -> None:
        """Send an event to every subscriber. `uid`: UID of the pod."""
        if self._subscribers:
            event = RuntimeEvent(
                kind=kind, uid=uid, sandbox_id=sandbox_id, unit_id=unit_id, at_ns=self.now_ns()
            )
            for subscriber in self._subscribers:
                subscriber.put(event)

    def subscribe(self) -> Subscription:
        """Return a subscription to events from now on."""
        subscription = Subscription(self._subscribers)
        self._subscribers.append(subscription)
        return subscription

    async def _run_out(self, unit_id: UnitId, seconds: float) -> None:
        await self.clock.sleep(seconds)
        unit = self.units.get(unit_id)
        if unit is not None:
            unit.task = None
            self.exit_unit(unit_id, unit.behaviour.exit_code)

    def _index(self, object_id: str, labels: Mapping[str, str]) -> None:
        if names.POD_UID in labels:
            self._by_pod.setdefault(labels[names.POD_UID], {})[object_id] = None

    def _unindex(self, object_id: str, labels: Mapping[str, str]) -> None:
        ids = self._by_pod.get(labels.get(names.POD_UID, ""))
        if ids is not None:
            ids.pop(object_id, None)
            if not ids:
                del self._by_pod[labels[names.POD_UID]]

    def _cancel_timer(self, unit: FakeUnit) -> None:
        if unit.task is not None:
            unit.task.cancel()
            unit.task = None


class Subscription:
    """Queue of events for one subscriber, who iterates over it.

    It has at most `EVENT_BUFFER` events. Further events are dropped, and one RESYNC event replaces them.
    """

    def __init__(self, registry: list[Subscription]) -> None:
        """`registry`: the backend's list of subscriptions, from which `end` removes this one."""
        self._registry = registry
        self._events: deque[RuntimeEvent] = deque()
        self._wake = asyncio.Event()
        self._ended = False

    def put(self, event: RuntimeEvent) -> None:
        """Queue one event. If the queue is full, the event is dropped, and the queue ends with a RESYNC event."""
        if len(self._events) < EVENT_BUFFER:
            self._events.append(event)
        elif self._events[-1].kind is not EventKind.RESYNC:
            self._events.append(RuntimeEvent(kind=EventKind.RESYNC))
        self._wake.set()

    def end(self) -> None:
        """End the stream. The subscriber still gets the events that are queued."""
        self._ended = True
        self._wake.set()
        if self in self._registry:
            self._registry.remove(self)

    def __aiter__(self) -> Subscription:
        return self

    async def __anext__(self) -> RuntimeEvent:
        while not self._events:
            if self._ended:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        return self._events.popleft()

    async def aclose(self) -> None:
        """End the stream, as `end` does."""
        self.end()


def granted(resources: Resources | None) -> dict[str, int]:
    """Return the integer fields of `resources` by name, as in `UnitStatus.resources`; empty for None."""
    if resources is None:
        return {}
    fields = {name: getattr(resources, name) for name in resources.__struct_fields__}
    return {name: value for name, value in fields.items() if isinstance(value, int)}


def cri_time(at: datetime) -> str:
    """Format a time as CRI log lines have it: RFC 3339 with nine digits after the second."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f000Z")
