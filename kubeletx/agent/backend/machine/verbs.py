"""Commands on virtual machines (``kubeletx vm``) for the admin socket.

power, size, interfaces   the request is stored and overrides the pod's spec; the pod's worker carries it out
reboot, snapshots         the start is stored, the runtime is called once, the outcome is stored (rule 8 of
                          docs/architecture.md)
all others                one call to the runtime, which changes nothing
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TypeVar
from weakref import WeakValueDictionary

import structlog
from msgspec.structs import replace

from kubeletx.api import (
    Conflict,
    InvalidConfig,
    KubeletxError,
    NotFound,
    PodUid,
    SnapshotStatus,
    SupportsDefinition,
    SupportsMachine,
    SupportsResize,
    SupportsScreenshot,
    SupportsSnapshots,
    TimedOut,
    Unavailable,
    UnitState,
    UnitSummary,
)
from kubeletx.api.names import Event
from kubeletx.kube.manifests.machine_form import machine_of, power_of
from kubeletx.kube.text.quantity import to_bytes, to_millicores
from kubeletx.pods import INFEASIBLE, ActionFailure, PodExecutor, PodWorker
from kubeletx.pods.model import results
from kubeletx.pods.workloads.machine.facts import machine_unit
from kubeletx.pods.workloads.machine.hardware import asked_size, size_key, sizes_of, wanted_limits
from kubeletx.pods.workloads.machine.power import (
    hold_message,
    initial_power,
    is_overridden,
    own_hold,
    wanted_power,
    was_switched_off,
)
from kubeletx.pods.workloads.overrides import Outcome, PodOverrides, begun, ended, overrides_of, without_begun
from kubeletx.pods.workloads.power import Power
from kubeletx.pods.workloads.standby.facts import standby_of
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.server.views import MachineOperation, MachineSize, MachineView, PodTarget, SnapshotView

from ..waiting import PowerRequest
from .access import MachineAccess
from .nics import SETTLE_SECONDS, MachineNics
from .reboots import DelayedReboots, RebootCancelled

T = TypeVar("T")

log = structlog.get_logger(__name__)

SNAPSHOT_SECONDS = 600.0
"""Added to the normal deadline of runtime calls: writing the memory of a large guest to disk takes long."""

_WANTED = {
    "pause": Power.PAUSED,
    "resume": Power.RUNNING,
    "suspend": Power.SUSPENDED,
    "start": Power.RUNNING,
    "stop": Power.OFF,
}
_NEED_IT_ON = ("pause", "resume", "suspend")
_REACHED = {
    Power.RUNNING: UnitState.RUNNING,
    Power.PAUSED: UnitState.PAUSED,
    Power.SUSPENDED: UnitState.SUSPENDED,
    Power.OFF: UnitState.EXITED,
}


class MachineBackend:
    """Carries out the commands on virtual machines of the admin socket. Implements `MachineVerbs`."""

    def __init__(self, services: PodExecutor, worker_of: Callable[[PodTarget], PodWorker]) -> None:
        """`worker_of`: returns the worker of the pod that a target names; raises NotFound or Conflict."""
        self._services = services
        self._access = MachineAccess(services, worker_of)
        nics = MachineNics(self._access)
        self.list_nics, self.attach_nic, self.detach_nic = nics.list, nics.attach, nics.detach
        self._reboots = DelayedReboots(services.clock)
        self._resizing: WeakValueDictionary[PodUid, asyncio.Lock] = WeakValueDictionary()
        self._under_way: set[tuple[PodUid, str]] = set()

    async def find_machine(self, target: PodTarget) -> MachineView:
        return self._view(await self._access.find(target))

    # --- commands -------------------------------------------------------------------------------------

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        if verb not in _WANTED:
            raise NotFound(f"no verb {verb!r}; verbs: {', '.join(_WANTED)}")
        worker = await self._access.find(target)
        _, machine = self._access.capable(worker, SupportsMachine, "change the power of its units")
        if verb in _NEED_IT_ON and self._is_off(worker):
            raise Conflict(f"cannot {verb} machine {target.ref}: it is off; use 'kubeletx vm start' first")
        wanted = _WANTED[verb]
        if wanted is Power.OFF:
            self._reboots.cancel(worker.uid, "the machine was stopped")
        request = PowerRequest(self._services, worker, wanted, f"{verb} machine {target.ref}", what="machine")
        await request.store(initial_power(worker.desired))
        await self._wake(worker, machine, wanted)
        await self._wait_power(worker, request, timeout_seconds)
        return self._view(worker)

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        worker = await self._access.find(target)
        asked = {k: v for k, v in (("cpu", size.cpu), ("memory", size.memory)) if v is not None}
        if not asked:
            raise InvalidConfig(field="resize", problem="names nothing", fix="give --cpu or --memory")
        for name, text in asked.items():
            _check_amount(name, text)
        self._access.capable(worker, SupportsResize, "resize its units while they run")
        # One resize of a machine at a time: an impossible size is replaced by the size requested before it, which would
        # otherwise undo a later request.
        async with self._resizing.setdefault(worker.uid, asyncio.Lock()):
            return await self._resize(worker, asked)

    # --- operations that must not be repeated -------------------------------------------------------

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        worker = await self._access.find(target)
        handle, machine = self._access.capable(worker, SupportsMachine, "reboot its units")
        self._access.running(worker, "reboot")

        async def reboot() -> None:
            if delay_seconds > 0:
                await self._reboots.wait_out(worker, delay_seconds)
            unit = self._access.running(worker, "reboot")
            with worker.holding(f"unit/{unit.name}", unit.name):
                await handle.change("reboot", lambda: machine.reboot(unit.id, 0.0))

        detail = f"after {delay_seconds:g}s" if delay_seconds > 0 else ""
        await self._once(worker, "reboot", detail, reboot)
        self._access.tell(
            worker, Event.MACHINE_REBOOTED, f"Rebooted machine {self._access.name(worker)} by command"
        )
        return self._view(worker)

    async def cancel_reboot(self, target: PodTarget) -> MachineView:
        worker = await self._access.find(target)
        if not self._reboots.cancel(worker.uid, "cancelled by command"):
            raise NotFound(f"machine {target.ref} has no pending reboot")
        return self._view(worker)

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.unit(worker)
        listed = await handle.ask("list_snapshots", lambda: snapshots.list_snapshots(unit.id))
        return [_snapshot_view(snapshot) for snapshot in listed]

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        _check_snapshot_name(name)
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.alive(worker) if memory else self._access.unit(worker)
        made = await self._on_snapshot(
            worker, unit, handle, "create", name, lambda: snapshots.create_snapshot(unit.id, name, memory)
        )
        return _snapshot_view(made)

    async def restore_snapshot(self, target: PodTarget, name: str) -> MachineView:
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.unit(worker)
        wanted = await self._known_snapshot(handle, snapshots, unit, target, name)
        if wanted.with_memory and wanted_power(worker.desired, worker.facts) is Power.OFF:
            raise Conflict(
                f"machine {target.ref} should be off, but snapshot {name!r} was taken while it ran: "
                "use 'kubeletx vm start' first"
            )
        await self._on_snapshot(
            worker, unit, handle, "restore", name, lambda: snapshots.restore_snapshot(unit.id, name)
        )
        return self._view(worker)

    async def delete_snapshot(self, target: PodTarget, name: str) -> MachineView:
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.unit(worker)
        await self._known_snapshot(handle, snapshots, unit, target, name)
        await self._on_snapshot(
            worker, unit, handle, "delete", name, lambda: snapshots.delete_snapshot(unit.id, name)
        )
        return self._view(worker)

    async def _known_snapshot(
        self,
        handle: RuntimeHandle,
        snapshots: SupportsSnapshots,
        unit: UnitSummary,
        target: PodTarget,
        name: str,
    ) -> SnapshotStatus:
        listed = await handle.ask("list_snapshots", lambda: snapshots.list_snapshots(unit.id))
        known = {snapshot.name: snapshot for snapshot in listed}
        if name not in known:
            have = ", ".join(known) or "none"
            raise NotFound(f"machine {target.ref} has no snapshot {name!r}; snapshots: {have}")
        return known[name]

    # --- questions ----------------------------------------------------------------------------------

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        worker = await self._access.find(target)
        unit = self._access.alive(worker)
        handle, pictures = self._access.capable(worker, SupportsScreenshot, "take screenshots")
        return await handle.ask("screenshot", lambda: pictures.screenshot(unit.id))

    async def machine_definition(self, target: PodTarget) -> str:
        worker = await self._access.find(target)
        unit = self._access.unit(worker)
        handle, definitions = self._access.capable(
            worker, SupportsDefinition, "show how it describes its units"
        )
        return await handle.ask("definition", lambda: definitions.definition(unit.id))

    # --- private ------------------------------------------------------------------------------------

    async def _resize(self, worker: PodWorker, asked: dict[str, str]) -> MachineView:
        machine = machine_of(worker.desired.pod, on_vm_runtime=True)
        spec = sizes_of(machine.resources.limits) if machine is not None else {}
        kept = sizes_of(wanted_limits(worker.desired, worker.facts))
        before = overrides_of(worker.facts) or PodOverrides()
        await self._services.overrides.amend(
            worker,
            lambda overrides: replace(overrides, resources={**kept, **asked}, resources_spec=spec),
        )
        # Not before `amend`: the worker would try the old size again, and its failure would delay the new one.
        worker.apply(results.Resized(self._access.name(worker)))
        failure = await self._settle_size(worker)
        if failure is None:
            return self._view(worker)
        text = f"cannot resize machine {worker.desired.ref}: {failure.message}"
        if failure.reason != INFEASIBLE:
            raise Conflict(f"{text}; the agent retries", reason=failure.reason)
        await self._services.overrides.amend(
            worker,
            lambda overrides: replace(
                overrides, resources=before.resources, resources_spec=before.resources_spec
            ),
        )
        worker.apply(results.Resized(self._access.name(worker)))
        raise Conflict(text, reason=failure.reason)

    async def _settle_size(self, worker: PodWorker) -> ActionFailure | None:
        """Wait, at most `SETTLE_SECONDS`, until the pod's worker has called the runtime for the requested size.

        Returns the failure of that resize; None if it has not failed so far.
        """
        name = self._access.name(worker)
        before = worker.facts.unit(name).resize_failure

        def failure() -> ActionFailure | None:
            failure = worker.facts.unit(name).resize_failure
            return failure if failure != before else None

        def is_settled() -> bool:
            unit = worker.facts.newest(name)
            if failure() is not None or unit is None or unit.state is not UnitState.RUNNING:
                return True
            return asked_size(unit, worker.facts) == size_key(wanted_limits(worker.desired, worker.facts))

        await self._access.wait(worker, is_settled, SETTLE_SECONDS)
        return failure()

    def _is_off(self, worker: PodWorker) -> bool:
        unit = self._access.find_unit(worker)
        has_ended = unit is not None and unit.state is UnitState.EXITED
        return has_ended or wanted_power(worker.desired, worker.facts) is Power.OFF

    async def _wake(self, worker: PodWorker, machine: SupportsMachine, wanted: Power) -> None:
        """Resume a machine that is to run and that no call paused: it sleeps, or an I/O error paused it.

        The pod's worker does not resume such a machine, since it could pause again without end.
        """
        unit = self._access.find_unit(worker)
        if wanted is not Power.RUNNING or unit is None or not own_hold(worker.facts, unit):
            return
        assert worker.facts.runtime is not None
        handle = self._services.registry.get(worker.facts.runtime)
        with worker.holding(f"unit/{unit.name}", unit.name):
            await handle.change("resume", lambda: machine.resume(unit.id))

    async def _wait_power(self, worker: PodWorker, request: PowerRequest, seconds: float) -> None:
        """Wait until the machine has the requested power state.

        Raises Conflict when the worker's attempt fails, and TimedOut after `seconds`; in both cases the request is
        kept.
        """
        name, wanted = self._access.name(worker), request.wanted
        refuse_failure = request.refusing(
            lambda: _power_failures(worker, name), lambda _: "; the agent retries"
        )

        def is_there() -> bool:
            unit = worker.facts.newest(name)
            if not worker.facts.is_in_doubt:
                if unit is None:
                    return wanted is Power.OFF
                if unit.state is _REACHED[wanted]:
                    return True
            refuse_failure()
            return False

        if not await request.wait(is_there, seconds):
            raise TimedOut(
                f"machine {worker.desired.ref} is not {wanted.value} after {seconds:g}s; the agent keeps trying"
            )

    async def _on_snapshot(
        self,
        worker: PodWorker,
        unit: UnitSummary,
        handle: RuntimeHandle,
        verb: str,
        name: str,
        call: Callable[[], Awaitable[T]],
    ) -> T:
        """Create, restore or delete a snapshot, as `_once`; the pod's worker does not change the unit meanwhile."""
        with worker.holding(f"unit/{unit.name}", unit.name):
            return await self._once(
                worker,
                f"snapshot {verb}",
                name,
                lambda: handle.change(f"{verb}_snapshot", call, more_seconds=SNAPSHOT_SECONDS),
            )

    async def _once(self, worker: PodWorker, verb: str, detail: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that must not be repeated, and return its result.

        The operation is stored as begun before the call, and its outcome after it. After a time-out or a lost
        connection the outcome is stored as unknown. Raises Conflict if an operation with the same `verb` is under way
        for the machine. `detail`: shown with the operation, such as the snapshot's name.
        """
        # Not the stored operations: one whose outcome could not be stored would block its verb until a restart.
        key = (worker.uid, verb)
        if key in self._under_way:
            hint = "; 'kubeletx vm reboot --cancel' cancels one that waits" if verb == "reboot" else ""
            raise Conflict(f"a {verb} of machine {worker.desired.ref} is under way already{hint}")
        self._under_way.add(key)
        try:
            return await self._recorded(worker, verb, detail, call)
        finally:
            self._under_way.remove(key)

    async def _recorded(
        self, worker: PodWorker, verb: str, detail: str, call: Callable[[], Awaitable[T]]
    ) -> T:
        numbers: list[int] = []

        def begin(overrides: PodOverrides) -> PodOverrides:
            now = self._services.clock.now()
            others = {other for uid, other in self._under_way if uid == worker.uid and other != verb}
            known, _ = without_begun(overrides, now, running=others)
            after, made = begun(known, verb, detail, now)
            numbers.append(made.id)
            return after

        await self._services.overrides.amend(worker, begin)
        try:
            result = await call()
        except RebootCancelled as error:
            await self._end(worker, numbers[0], Outcome.CANCELLED, str(error))
            raise Conflict(f"{verb} of machine {worker.desired.ref} was cancelled: {error}") from error
        except KubeletxError as error:
            unknown = isinstance(error, TimedOut | Unavailable)
            outcome = Outcome.UNKNOWN if unknown else Outcome.FAILED
            await self._end(worker, numbers[0], outcome, str(error))
            what = f"{verb} {detail}".strip()
            reason = Event.OPERATION_UNKNOWN if unknown else Event.OPERATION_FAILED
            self._access.tell(worker, reason, f"{what}: {error}", type="Warning")
            raise
        await self._end(worker, numbers[0], Outcome.DONE)
        return result

    async def _end(self, worker: PodWorker, number: int, outcome: Outcome, message: str = "") -> None:
        """Store the outcome; only log a failure: the operation is over, and the next one sets this one to UNKNOWN."""
        now = self._services.clock.now()
        if worker.is_done:
            return
        try:
            await self._services.overrides.amend(
                worker, lambda overrides: ended(overrides, number, outcome, now, message)
            )
        except KubeletxError as error:  # a full disk, or the pod and its directory were removed meanwhile
            log.warning("Failed to record an operation", pod=worker.desired.ref, err=str(error))

    def _view(self, worker: PodWorker) -> MachineView:
        desired, facts, pod = worker.desired, worker.facts, worker.desired.pod
        status = self._services.board.statuses.get(worker.uid)
        shown = status.virtual_machine_status if status is not None else None
        unit = facts.newest(self._access.name(worker))
        state = shown.power_state or "" if shown is not None else ""
        if was_switched_off(facts, unit):
            state = "shutdown"
        overrides = overrides_of(facts) or PodOverrides()
        return MachineView(
            namespace=pod.namespace,
            name=pod.name,
            machine=self._access.name(worker),
            runtime=str(facts.runtime),
            power=wanted_power(desired, facts).value,
            overrides=power_of(pod) if is_overridden(desired, facts) else "",
            power_state=state,
            problem=hold_message(facts, unit) if unit is not None else "",
            limits=sizes_of(wanted_limits(desired, facts)),
            granted=sizes_of(shown.resources.limits) if shown is not None else {},
            operations=tuple(
                MachineOperation(
                    verb=operation.verb,
                    detail=operation.detail,
                    begun_at=operation.begun_at,
                    ended_at=operation.ended_at,
                    outcome=operation.outcome.value,
                    message=operation.message,
                )
                for operation in overrides.operations
            ),
        )


def _power_failures(worker: PodWorker, name: str) -> dict[str, ActionFailure]:
    """Return the failure of the last power change of the machine or, if that succeeded, of its thaw from standby."""
    failure = machine_unit(worker.facts, name).power_failure or standby_of(worker.facts).thaw_failures.get(
        name
    )
    return {name: failure} if failure is not None else {}


def _snapshot_view(snapshot: SnapshotStatus) -> SnapshotView:
    created = datetime.fromtimestamp(snapshot.created_at_ns / 1e9, UTC) if snapshot.created_at_ns else None
    return SnapshotView(
        name=snapshot.name,
        created_at=created,
        with_memory=snapshot.with_memory,
        current=snapshot.is_current,
        parent=snapshot.parent,
        size_bytes=snapshot.size_bytes,
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
        raise InvalidConfig(field=name, problem=f"{text!r} is not more than 0", fix="give an amount above 0")
