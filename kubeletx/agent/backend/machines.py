"""Verbs of virtual machines for the admin socket.

power, size, interfaces   an order beside the spec; the pod's plan carries it out
reboot, snapshots         written down as begun, called once, written down as ended (rule 8)
the rest                  a question to the runtime
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar

import structlog
from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    InvalidConfig,
    KubeletxError,
    NotFound,
    ObjectRef,
    SnapshotStatus,
    SupportsDefinition,
    SupportsMachine,
    SupportsNics,
    SupportsResize,
    SupportsScreenshot,
    SupportsSnapshots,
    TimedOut,
    Unavailable,
    UnitState,
    UnitSummary,
    Unsupported,
)
from kubeletx.api.names import Event
from kubeletx.kube.core import Nic
from kubeletx.kube.machine_form import machine_of, power_of
from kubeletx.kube.quantity import to_bytes, to_millicores
from kubeletx.pods.devices import FIRST_NIC, nics_key, sizes_of, wanted_limits, wanted_nics
from kubeletx.pods.orders import Orders, Outcome, begun, ended, with_power
from kubeletx.pods.phase import FINAL
from kubeletx.pods.power import Power, is_overridden, own_hold, spec_power, wanted_power, was_switched_off
from kubeletx.pods.progress import newest
from kubeletx.pods.roles import regular_units
from kubeletx.pods.services import PodServices
from kubeletx.pods.steps.orders import amend, ensure_read
from kubeletx.pods.worker import PodWorker
from kubeletx.runtimes.handle import RuntimeHandle
from kubeletx.server.views import (
    MachineOperation,
    MachineSize,
    MachineView,
    NicRequest,
    NicView,
    PodTarget,
    SnapshotView,
)

T = TypeVar("T")

log = structlog.get_logger(__name__)

SNAPSHOT_SECONDS = 600.0
"""Memory of a large guest goes to disk; on top of the runtime's own deadline."""

_WANTED = {
    "pause": Power.PAUSED,
    "resume": Power.RUNNING,
    "suspend": Power.SUSPENDED,
    "start": Power.RUNNING,
    "stop": Power.OFF,
}
_REACHED = {
    Power.RUNNING: UnitState.RUNNING,
    Power.PAUSED: UnitState.HELD,
    Power.SUSPENDED: UnitState.PARKED,
    Power.OFF: UnitState.EXITED,
}


class MachineBackend:
    """The machine part of `AdminBackend`."""

    def __init__(self, services: PodServices, worker_of: Callable[[PodTarget], PodWorker]) -> None:
        """`worker_of`: the living pod that a target means; raises NotFound or Conflict."""
        self._services = services
        self._worker_of = worker_of

    async def find_machine(self, target: PodTarget) -> MachineView:
        """How it stands and what was asked of it."""
        return self._view(await self._machine(target))

    # --- orders -------------------------------------------------------------------------------------

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """Record what is wanted above powerSpec, and wait until it is so."""
        if verb not in _WANTED:
            raise NotFound(f"no verb {verb!r}; verbs: {', '.join(_WANTED)}")
        worker = await self._machine(target)
        _, machine = self._capable(worker, SupportsMachine, "change the power of its units")
        if verb == "resume" and wanted_power(worker.desired, worker.facts) is Power.OFF:
            raise Conflict(f"machine {target.ref} is off; use 'kubeletx vm start'")
        wanted = _WANTED[verb]
        desired = worker.desired
        await amend(
            self._services,
            worker,
            lambda orders: with_power(orders, wanted.value, spec_power(desired).value, power_of(desired.pod)),
        )
        await self._wake(worker, machine, wanted)
        await self._wait_power(worker, wanted, timeout_seconds)
        return self._view(worker)

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Record other limits; the machine takes them while it runs, or when it runs again."""
        worker = await self._machine(target)
        asked = {k: v for k, v in (("cpu", size.cpu), ("memory", size.memory)) if v is not None}
        if not asked:
            raise InvalidConfig(field="resize", problem="names nothing", fix="give --cpu or --memory")
        for name, text in asked.items():
            _check_amount(name, text)
        self._capable(worker, SupportsResize, "resize its units while they run")
        machine = machine_of(worker.desired.pod, on_vm_runtime=True)
        spec = sizes_of(machine.resources.limits) if machine is not None else {}
        kept = sizes_of(wanted_limits(worker.desired, worker.facts))
        await amend(
            self._services,
            worker,
            lambda orders: replace(orders, resources={**kept, **asked}, resources_spec=spec),
        )
        return self._view(worker)

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """Those that are there, then those that are wanted and are not."""
        worker = await self._machine(target)
        unit = self._alive(worker)
        handle, nics = self._capable(worker, SupportsNics, "list the interfaces of its units")
        found = await handle.ask("list_nics", lambda: nics.list_nics(unit.id))
        views = [
            NicView(
                name=one.name,
                state=one.state.value,
                mac=one.mac,
                network=one.network,
                port_id=one.port_id,
                ips=one.ips,
                message=one.message,
            )
            for one in found
        ]
        present = {one.name for one in found}
        failure = worker.facts.unit(unit.name).nic_failure
        message = failure.message if failure is not None else ""
        for name, nic in wanted_nics(worker.desired, worker.facts).items():
            if name not in present and name != FIRST_NIC:
                views.append(
                    NicView(
                        name=name,
                        state="wanted",
                        network=nic.subnet_name or "",
                        port_id=nic.port_id or "",
                        message=message,
                    )
                )
        return views

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Record that the machine is to have this interface too."""
        worker = await self._machine(target)
        self._capable(worker, SupportsNics, "change the interfaces of its units")
        if not wanted.name:
            raise InvalidConfig(field="name", problem="is missing", fix="name the interface")
        if wanted.name in wanted_nics(worker.desired, worker.facts):
            raise Conflict(f"machine {target.ref} has an interface {wanted.name!r} already")
        nic = Nic(
            name=wanted.name,
            subnet_name=wanted.subnet_name,
            port_id=wanted.port_id,
            ip_address=wanted.ip_address,
            tag=wanted.tag,
            ipv6_enabled=wanted.ipv6_enabled,
        )
        await self._order_nics(worker, added=nic)
        return await self._settled_nics(worker, target, lambda names: wanted.name in names)

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Record that the machine is not to have it; one that it has not is no error."""
        worker = await self._machine(target)
        self._capable(worker, SupportsNics, "change the interfaces of its units")
        if name == FIRST_NIC:
            raise Conflict(f"{FIRST_NIC} is the pod network's own interface and stays")
        if name in wanted_nics(worker.desired, worker.facts):
            await self._order_nics(worker, removed=name)
        return await self._settled_nics(worker, target, lambda names: name not in names)

    # --- what may not be repeated -------------------------------------------------------------------

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Once the delay is over; the host waits, so that no call of the runtime is held."""
        worker = await self._machine(target)
        handle, machine = self._capable(worker, SupportsMachine, "reboot its units")
        self._running(worker, "reboot")

        async def reboot() -> None:
            if delay_seconds > 0:
                await self._wait_out(worker, delay_seconds)
            unit = self._running(worker, "reboot")
            with worker.holding(f"unit/{unit.name}", unit.name):
                await handle.change("reboot", lambda: machine.reboot(unit.id, 0.0))

        detail = f"after {delay_seconds:g}s" if delay_seconds > 0 else ""
        await self._once(worker, "reboot", detail, reboot)
        self._tell(worker, Event.MACHINE_REBOOTED, f"Rebooted machine {self._name(worker)} by command")
        return self._view(worker)

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """All of them, oldest first."""
        worker = await self._machine(target)
        handle, snapshots = self._capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._unit(worker)
        found = await handle.ask("list_snapshots", lambda: snapshots.list_snapshots(unit.id))
        return [_snapshot_view(one) for one in found]

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Make one."""
        _check_snapshot_name(name)
        worker = await self._machine(target)
        handle, snapshots = self._capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._alive(worker) if memory else self._unit(worker)
        made = await self._held(
            worker,
            unit,
            "snapshot create",
            name,
            lambda: handle.change(
                "create_snapshot",
                lambda: snapshots.create_snapshot(unit.id, name, memory),
                more_seconds=SNAPSHOT_SECONDS,
            ),
        )
        return _snapshot_view(made)

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Bring the machine back to it; an unknown one changes nothing."""
        worker = await self._machine(target)
        handle, snapshots = self._capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._unit(worker)
        known = {
            one.name: one
            for one in await handle.ask("list_snapshots", lambda: snapshots.list_snapshots(unit.id))
        }
        if name not in known:
            have = ", ".join(known) or "none"
            raise NotFound(f"machine {target.ref} has no snapshot {name!r}; snapshots: {have}")
        if known[name].with_memory and wanted_power(worker.desired, worker.facts) is Power.OFF:
            raise Conflict(
                f"machine {target.ref} is to be off, and snapshot {name!r} would bring it back running: "
                "use 'kubeletx vm start' first"
            )
        await self._held(
            worker,
            unit,
            "snapshot restore",
            name,
            lambda: handle.change(
                "restore_snapshot",
                lambda: snapshots.restore_snapshot(unit.id, name),
                more_seconds=SNAPSHOT_SECONDS,
            ),
        )
        return self._view(worker)

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        """Forget it; one that is not there is no error."""
        worker = await self._machine(target)
        handle, snapshots = self._capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._unit(worker)
        await self._held(
            worker,
            unit,
            "snapshot delete",
            name,
            lambda: handle.change(
                "delete_snapshot",
                lambda: snapshots.delete_snapshot(unit.id, name),
                more_seconds=SNAPSHOT_SECONDS,
            ),
        )
        return self._view(worker)

    # --- questions ----------------------------------------------------------------------------------

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """A PNG."""
        worker = await self._machine(target)
        unit = self._alive(worker)
        handle, pictures = self._capable(worker, SupportsScreenshot, "take screenshots")
        return await handle.ask("screenshot", lambda: pictures.screenshot(unit.id))

    async def machine_definition(self, target: PodTarget) -> str:
        """The backend's own words."""
        worker = await self._machine(target)
        unit = self._unit(worker)
        handle, definitions = self._capable(worker, SupportsDefinition, "show how it describes its units")
        return await handle.ask("definition", lambda: definitions.definition(unit.id))

    # --- private ------------------------------------------------------------------------------------

    async def _machine(self, target: PodTarget) -> PodWorker:
        """The worker of a pod that is a machine, bound and not ended. Raises what says why not."""
        worker = self._worker_of(target)
        if not worker.facts.is_machine and machine_of(worker.desired.pod) is None:
            raise Unsupported(
                f"pod {target.ref} is a pod of containers; 'kubeletx vm' is for virtual machines"
            )
        if worker.facts.runtime is None:
            raise Conflict(f"pod {target.ref} is not bound to a runtime yet")
        status = self._services.board.statuses.get(worker.uid)
        if worker.desired.is_going or (status is not None and status.phase in FINAL):
            raise Conflict(f"machine {target.ref} is at its end")
        await ensure_read(self._services, worker)
        return worker

    def _name(self, worker: PodWorker) -> str:
        return regular_units(worker.desired.pod)[0].name

    def _unit(self, worker: PodWorker) -> UnitSummary:
        unit = newest(worker.facts, self._name(worker))
        if unit is None:
            raise Conflict(f"machine {worker.desired.ref} was never started")
        return unit

    def _alive(self, worker: PodWorker) -> UnitSummary:
        unit = self._unit(worker)
        if not unit.state.is_alive:
            raise Conflict(f"machine {worker.desired.ref} is off")
        return unit

    def _running(self, worker: PodWorker, verb: str) -> UnitSummary:
        unit = self._alive(worker)
        if unit.state is not UnitState.RUNNING:
            raise Conflict(
                f"cannot {verb} machine {worker.desired.ref}: it is {unit.state.value}; "
                "use 'kubeletx vm resume' first"
            )
        return unit

    def _capable(self, worker: PodWorker, protocol: type[T], what: str) -> tuple[RuntimeHandle, T]:
        assert worker.facts.runtime is not None
        handle = self._services.registry.get(worker.facts.runtime)
        handle.require_reachable()
        found: T | None = handle.capability(protocol)
        if found is None:
            raise Unsupported(f"runtime {handle.name} cannot {what}")
        return handle, found

    async def _wake(self, worker: PodWorker, machine: SupportsMachine, wanted: Power) -> None:
        """Let a machine go on that holds itself; the plan does not, since it might do so for ever."""
        unit = newest(worker.facts, self._name(worker))
        if wanted is not Power.RUNNING or unit is None or not own_hold(worker.facts, unit):
            return
        assert worker.facts.runtime is not None
        handle = self._services.registry.get(worker.facts.runtime)
        with worker.holding(f"unit/{unit.name}", unit.name):
            await handle.change("resume", lambda: machine.resume(unit.id))

    async def _wait_power(self, worker: PodWorker, wanted: Power, seconds: float) -> None:
        """Until the machine is there. Raises what keeps it, and TimedOut; the order stands all the same."""
        news = asyncio.Event()
        stop = self._services.board.subscribe(lambda *_: news.set())
        name = self._name(worker)
        before = worker.facts.unit(name).power_failure
        ends = self._services.clock.monotonic() + seconds
        try:
            while True:
                unit = newest(worker.facts, name)
                if unit is not None and unit.state is _REACHED[wanted]:
                    return
                if unit is None and wanted is Power.OFF:
                    return
                failure = worker.facts.unit(name).power_failure
                if failure is not None and failure != before:
                    raise Conflict(f"{failure.message}; it is tried again", reason=failure.reason)
                if worker.is_done or worker.desired.is_going:
                    raise Conflict(f"machine {worker.desired.ref} is at its end")
                if self._services.clock.monotonic() >= ends:
                    raise TimedOut(
                        f"machine {worker.desired.ref} is not {wanted.value} after {seconds:g}s; "
                        "it is still wanted"
                    )
                news.clear()
                cancel = self._services.clock.call_at(
                    min(ends, self._services.clock.monotonic() + 0.1), news.set
                )
                try:
                    await news.wait()
                finally:
                    cancel()
        finally:
            stop()

    async def _order_nics(self, worker: PodWorker, *, added: Nic | None = None, removed: str = "") -> None:
        key = nics_key(worker.desired)
        in_spec = key.split(",")

        def change(orders: Orders) -> Orders:
            if orders.nics_spec != key:
                orders = replace(orders, nics_added=(), nics_removed=(), nics_spec=key)
            extra = tuple(one for one in orders.nics_added if one.name != removed)
            gone = tuple(one for one in orders.nics_removed if added is None or one != added.name)
            if removed in in_spec and removed:
                gone = (*gone, removed)
            if added is not None:
                extra = (*extra, added)
            return replace(orders, nics_added=extra, nics_removed=gone)

        await amend(self._services, worker, change)

    async def _settled_nics(
        self, worker: PodWorker, target: PodTarget, is_there: Callable[[set[str]], bool]
    ) -> Sequence[NicView]:
        """The list once the plan has done its part, or had a failure that the list shows, or after a while."""
        unit = newest(worker.facts, self._name(worker))
        if unit is None or unit.state is not UnitState.RUNNING:
            return ()
        ends = self._services.clock.monotonic() + 10.0
        before = worker.facts.unit(unit.name).nic_failure
        while self._services.clock.monotonic() < ends:
            known = worker.facts.unit(unit.name)
            seen = {one.name for one in known.nics or ()} if not known.nics_stale else None
            if known.nic_failure not in (None, before) or (
                seen is not None and known.nics is not None and is_there(seen)
            ):
                break
            await self._services.clock.sleep(0.05)
        return await self.list_nics(target)

    async def _held(
        self,
        worker: PodWorker,
        unit: UnitSummary,
        verb: str,
        detail: str,
        call: Callable[[], Awaitable[T]],
    ) -> T:
        """`_once`, with the plan kept from the unit meanwhile."""
        with worker.holding(f"unit/{unit.name}", unit.name):
            return await self._once(worker, verb, detail, call)

    async def _once(self, worker: PodWorker, verb: str, detail: str, call: Callable[[], Awaitable[T]]) -> T:
        """Begun is written down before, the end after; an answer that was lost is an end of its own."""
        orders = worker.facts.orders or Orders()
        if any(one.verb == verb and one.outcome is Outcome.BEGUN for one in orders.operations):
            raise Conflict(f"a {verb} of machine {worker.desired.ref} is under way already")
        numbers: list[int] = []

        def begin(orders: Orders) -> Orders:
            after, made = begun(orders, verb, detail, self._services.clock.now())
            numbers.append(made.id)
            return after

        await amend(self._services, worker, begin)
        try:
            result = await call()
        except KubeletxError as error:
            unknown = isinstance(error, TimedOut | Unavailable)
            outcome = Outcome.UNKNOWN if unknown else Outcome.FAILED
            try:
                await self._end(worker, numbers[0], outcome, str(error))
            except KubeletxError as unwritten:  # the pod's directory may just have gone with it
                log.warning("Failed to record an operation", pod=worker.desired.ref, err=str(unwritten))
            what = f"{verb} {detail}".strip()
            reason = Event.OPERATION_UNKNOWN if unknown else Event.OPERATION_FAILED
            self._tell(worker, reason, f"{what}: {error}", type="Warning")
            raise
        await self._end(worker, numbers[0], Outcome.DONE)
        return result

    async def _wait_out(self, worker: PodWorker, seconds: float) -> None:
        """Return after the time. Raises Conflict as soon as the pod is deleted meanwhile."""
        waiting = [
            asyncio.ensure_future(self._services.clock.sleep(seconds)),
            asyncio.ensure_future(worker.ending.wait()),
        ]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()
        if worker.ending.is_set():
            raise Conflict(f"pod {worker.desired.ref} was deleted before its machine was to reboot")

    async def _end(self, worker: PodWorker, number: int, outcome: Outcome, message: str = "") -> None:
        now = self._services.clock.now()
        if not worker.is_done:
            await amend(self._services, worker, lambda orders: ended(orders, number, outcome, now, message))

    def _tell(self, worker: PodWorker, reason: str, message: str, *, type: str = "Normal") -> None:
        pod = worker.desired.pod
        ref = ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(pod.uid))
        self._services.events.record(ref, type=type, reason=reason, message=message)

    def _view(self, worker: PodWorker) -> MachineView:
        desired, facts, pod = worker.desired, worker.facts, worker.desired.pod
        status = self._services.board.statuses.get(worker.uid)
        shown = status.virtual_machine_status if status is not None else None
        unit = newest(facts, self._name(worker))
        state = shown.power_state or "" if shown is not None else ""
        if was_switched_off(facts, unit):
            state = "shutdown"
        orders = facts.orders or Orders()
        return MachineView(
            namespace=pod.namespace,
            name=pod.name,
            machine=self._name(worker),
            runtime=str(facts.runtime),
            power=wanted_power(desired, facts).value,
            overrides=power_of(pod) if is_overridden(desired, facts) else "",
            power_state=state,
            limits=sizes_of(wanted_limits(desired, facts)),
            granted=sizes_of(shown.resources.limits) if shown is not None else {},
            operations=tuple(
                MachineOperation(
                    verb=one.verb,
                    detail=one.detail,
                    begun_at=one.begun_at,
                    ended_at=one.ended_at,
                    outcome=one.outcome.value,
                    message=one.message,
                )
                for one in orders.operations
            ),
        )


def _snapshot_view(one: SnapshotStatus) -> SnapshotView:
    created = datetime.fromtimestamp(one.created_at_ns / 1e9, UTC) if one.created_at_ns else None
    return SnapshotView(
        name=one.name,
        created_at=created,
        with_memory=one.with_memory,
        current=one.is_current,
        parent=one.parent,
        size_bytes=one.size_bytes,
    )


def _check_snapshot_name(name: str) -> None:
    if not name or len(name) > 63 or not all(c.isascii() and (c.isalnum() or c in "-_.") for c in name):
        raise InvalidConfig(
            field="snapshot",
            problem=f"{name!r} is not a name",
            fix="use at most 63 letters, digits, '-', '_' and '.'",
        )


def _check_amount(name: str, text: str) -> None:
    try:
        amount = to_millicores(text) if name == "cpu" else to_bytes(text)
    except ValueError as err:
        raise InvalidConfig(
            field=name, problem=f"{text!r} {err}", fix="write 2 or 1500m for cpu, 2Gi for memory"
        ) from err
    if amount <= 0:
        raise InvalidConfig(field=name, problem=f"{text!r} is not more than 0", fix="give more")
