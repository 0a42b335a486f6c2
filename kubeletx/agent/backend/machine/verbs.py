"""Verbs of virtual machines for the admin socket.

power, size, interfaces   stored as a request that overrides the spec; the pod's plan carries it out
reboot, snapshots         stored as begun, called once, stored as ended (rule 8 of docs/architecture.md)
the rest                  one call to the runtime, which changes nothing
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
from kubeletx.pods import INFEASIBLE, ActionFailure, PodExecutor, PodWorker, newest
from kubeletx.pods.model import results
from kubeletx.pods.workloads.machine.facts import machine_unit
from kubeletx.pods.workloads.machine.hardware import asked_size, size_key, sizes_of, wanted_limits
from kubeletx.pods.workloads.machine.power import (
    hold_message,
    is_overridden,
    own_hold,
    spec_power,
    wanted_power,
    was_switched_off,
)
from kubeletx.pods.workloads.overrides import Outcome, PodOverrides, begun, ended, overrides_of, with_power
from kubeletx.pods.workloads.power import Power
from kubeletx.runtimes.handles.handle import RuntimeHandle
from kubeletx.server.machine.views import (
    MachineOperation,
    MachineSize,
    MachineView,
    NicRequest,
    NicView,
    SnapshotView,
)
from kubeletx.server.views import PodTarget

from .access import MachineAccess
from .nics import SETTLE_SECONDS, MachineNics
from .reboots import DelayedReboots, RebootCancelled

T = TypeVar("T")

log = structlog.get_logger(__name__)

SNAPSHOT_SECONDS = 600.0
"""Added to the runtime's own deadline: writing the memory of a large guest to disk takes long."""

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
    """Commands on virtual machines. Implements `MachineVerbs`."""

    def __init__(self, services: PodExecutor, worker_of: Callable[[PodTarget], PodWorker]) -> None:
        """`worker_of`: returns the worker of a target's living pod; raises NotFound or Conflict."""
        self._services = services
        self._access = MachineAccess(services, worker_of)
        self._nics = MachineNics(self._access)
        self._reboots = DelayedReboots(services.clock)
        self._resizing: WeakValueDictionary[PodUid, asyncio.Lock] = WeakValueDictionary()

    async def find_machine(self, target: PodTarget) -> MachineView:
        """State of the machine and the pending requests for it."""
        return self._view(await self._access.find(target))

    # --- commands -------------------------------------------------------------------------------------

    async def machine_power(self, target: PodTarget, verb: str, timeout_seconds: float) -> MachineView:
        """Request a power state, which overrides powerSpec, and wait until the machine has it.

        Raises TimedOut after `timeout_seconds`; the request is kept.
        """
        if verb not in _WANTED:
            raise NotFound(f"no verb {verb!r}; verbs: {', '.join(_WANTED)}")
        worker = await self._access.find(target)
        _, machine = self._access.capable(worker, SupportsMachine, "change the power of its units")
        if verb in _NEED_IT_ON and self._is_off(worker):
            raise Conflict(f"cannot {verb} machine {target.ref}: it is off; use 'kubeletx vm start' first")
        wanted = _WANTED[verb]
        if wanted is Power.OFF:
            self._reboots.cancel(worker.uid, "the machine was stopped")
        desired = worker.desired
        await self._services.overrides.amend(
            worker,
            lambda overrides: with_power(
                overrides, wanted.value, spec_power(desired).value, power_of(desired.pod)
            ),
        )
        await self._wake(worker, machine, wanted)
        await self._wait_power(worker, verb, wanted, timeout_seconds)
        return self._view(worker)

    async def resize_machine(self, target: PodTarget, size: MachineSize) -> MachineView:
        """Request other CPU and memory limits. A machine that does not run gets them when it runs again."""
        worker = await self._access.find(target)
        asked = {k: v for k, v in (("cpu", size.cpu), ("memory", size.memory)) if v is not None}
        if not asked:
            raise InvalidConfig(field="resize", problem="names nothing", fix="give --cpu or --memory")
        for name, text in asked.items():
            _check_amount(name, text)
        self._access.capable(worker, SupportsResize, "resize its units while they run")
        # One at a time: an impossible size goes back to what was wanted before it, and would undo a later one.
        async with self._resizing.setdefault(worker.uid, asyncio.Lock()):
            return await self._resize(worker, asked)

    async def list_nics(self, target: PodTarget) -> Sequence[NicView]:
        """List the interfaces of the machine, then the requested ones that it does not have yet."""
        return await self._nics.list(target)

    async def attach_nic(self, target: PodTarget, wanted: NicRequest) -> Sequence[NicView]:
        """Request a further network interface of the machine; see `MachineNics.attach`."""
        return await self._nics.attach(target, wanted)

    async def detach_nic(self, target: PodTarget, name: str) -> Sequence[NicView]:
        """Request that an interface is removed; succeeds if there is none of this name.

        See `MachineNics.detach`.
        """
        return await self._nics.detach(target, name)

    # --- what may not be repeated -------------------------------------------------------------------

    async def reboot_machine(self, target: PodTarget, delay_seconds: float) -> MachineView:
        """Wait `delay_seconds`, then reboot the machine.

        The wait is in the agent, so that no runtime call is open meanwhile.
        """
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
        """Cancel a delayed reboot. Raises NotFound if there is none."""
        worker = await self._access.find(target)
        if not self._reboots.cancel(worker.uid, "cancelled by command"):
            raise NotFound(f"machine {target.ref} has no pending reboot")
        return self._view(worker)

    async def list_snapshots(self, target: PodTarget) -> Sequence[SnapshotView]:
        """Snapshots of the machine, oldest first."""
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.unit(worker)
        found = await handle.ask("list_snapshots", lambda: snapshots.list_snapshots(unit.id))
        return [_snapshot_view(one) for one in found]

    async def create_snapshot(self, target: PodTarget, name: str, memory: bool) -> SnapshotView:
        """Create a snapshot.

        `memory`: include the guest's memory, for which the machine must be running or paused.
        """
        _check_snapshot_name(name)
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.alive(worker) if memory else self._access.unit(worker)
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
        """Restore the machine from a snapshot.

        Raises NotFound for an unknown one, and Conflict if it would start a machine that is to be off.
        """
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.unit(worker)
        wanted = await self._known_snapshot(handle, snapshots, unit, target, name)
        if wanted.with_memory and wanted_power(worker.desired, worker.facts) is Power.OFF:
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
        """Delete a snapshot. Raises NotFound for an unknown one."""
        worker = await self._access.find(target)
        handle, snapshots = self._access.capable(worker, SupportsSnapshots, "make snapshots")
        unit = self._access.unit(worker)
        await self._known_snapshot(handle, snapshots, unit, target, name)
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

    async def _known_snapshot(
        self,
        handle: RuntimeHandle,
        snapshots: SupportsSnapshots,
        unit: UnitSummary,
        target: PodTarget,
        name: str,
    ) -> SnapshotStatus:
        found = await handle.ask("list_snapshots", lambda: snapshots.list_snapshots(unit.id))
        known = {one.name: one for one in found}
        if name not in known:
            have = ", ".join(known) or "none"
            raise NotFound(f"machine {target.ref} has no snapshot {name!r}; snapshots: {have}")
        return known[name]

    # --- questions ----------------------------------------------------------------------------------

    async def machine_screenshot(self, target: PodTarget) -> bytes:
        """The machine's screen as PNG."""
        worker = await self._access.find(target)
        unit = self._access.alive(worker)
        handle, pictures = self._access.capable(worker, SupportsScreenshot, "take screenshots")
        return await handle.ask("screenshot", lambda: pictures.screenshot(unit.id))

    async def machine_definition(self, target: PodTarget) -> str:
        """The machine's definition in the format of its runtime, such as domain XML."""
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
        # Not before the order: the plan would try the old size, whose failure then holds up the new one.
        worker.apply(results.Resized(self._access.name(worker)))
        failure = await self._settle_size(worker)
        if failure is None:
            return self._view(worker)
        text = f"cannot resize machine {worker.desired.ref}: {failure.message}"
        if failure.reason != INFEASIBLE:
            raise Conflict(f"{text}; it is still wanted and tried again", reason=failure.reason)
        await self._services.overrides.amend(
            worker,
            lambda overrides: replace(
                overrides, resources=before.resources, resources_spec=before.resources_spec
            ),
        )
        worker.apply(results.Resized(self._access.name(worker)))
        raise Conflict(text, reason=failure.reason)

    async def _settle_size(self, worker: PodWorker) -> ActionFailure | None:
        """Wait, at most `SETTLE_SECONDS`, until the runtime was asked for the wanted size.

        Returns the failure of the request, or None if there is none so far.
        """
        name = self._access.name(worker)
        before = worker.facts.unit(name).resize_failure

        def failure() -> ActionFailure | None:
            found = worker.facts.unit(name).resize_failure
            return found if found != before else None

        def is_settled() -> bool:
            unit = newest(worker.facts, name)
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
        """Resume a machine that paused itself, if it is wanted running.

        The plan does not resume such machines: it could do so endlessly.
        """
        unit = self._access.find_unit(worker)
        if wanted is not Power.RUNNING or unit is None or not own_hold(worker.facts, unit):
            return
        assert worker.facts.runtime is not None
        handle = self._services.registry.get(worker.facts.runtime)
        with worker.holding(f"unit/{unit.name}", unit.name):
            await handle.change("resume", lambda: machine.resume(unit.id))

    async def _wait_power(self, worker: PodWorker, verb: str, wanted: Power, seconds: float) -> None:
        """Wait until the machine has the wanted power state.

        Raises Conflict with a new failure of the plan, or TimedOut after `seconds`; the request is kept.
        """
        name, ref = self._access.name(worker), worker.desired.ref
        before = machine_unit(worker.facts, name).power_failure

        def is_there() -> bool:
            unit = newest(worker.facts, name)
            if unit is None:
                return wanted is Power.OFF
            if unit.state is _REACHED[wanted]:
                return True
            failure = machine_unit(worker.facts, name).power_failure
            if failure is not None and failure != before:
                raise Conflict(
                    f"cannot {verb} machine {ref}: {failure.message}; it is tried again",
                    reason=failure.reason,
                )
            return False

        if not await self._access.wait(worker, is_there, seconds):
            raise TimedOut(f"machine {ref} is not {wanted.value} after {seconds:g}s; it is still wanted")

    async def _held(
        self,
        worker: PodWorker,
        unit: UnitSummary,
        verb: str,
        detail: str,
        call: Callable[[], Awaitable[T]],
    ) -> T:
        """Do the same as `_once`, and prevent the pod's plan from changing the unit meanwhile."""
        with worker.holding(f"unit/{unit.name}", unit.name):
            return await self._once(worker, verb, detail, call)

    async def _once(self, worker: PodWorker, verb: str, detail: str, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call that must not be repeated: its begin is stored before the call, its outcome after it.

        Raises Conflict if the same verb is under way. After a time-out or a lost connection the outcome is
        stored as unknown.
        """
        overrides = overrides_of(worker.facts) or PodOverrides()
        if any(one.verb == verb and one.outcome is Outcome.BEGUN for one in overrides.operations):
            hint = "; 'kubeletx vm reboot --cancel' cancels one that waits" if verb == "reboot" else ""
            raise Conflict(f"a {verb} of machine {worker.desired.ref} is under way already{hint}")
        numbers: list[int] = []

        def begin(overrides: PodOverrides) -> PodOverrides:
            after, made = begun(overrides, verb, detail, self._services.clock.now())
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
            try:
                await self._end(worker, numbers[0], outcome, str(error))
            except KubeletxError as unwritten:  # the pod's directory may just have gone with it
                log.warning("Failed to record an operation", pod=worker.desired.ref, err=str(unwritten))
            what = f"{verb} {detail}".strip()
            reason = Event.OPERATION_UNKNOWN if unknown else Event.OPERATION_FAILED
            self._access.tell(worker, reason, f"{what}: {error}", type="Warning")
            raise
        await self._end(worker, numbers[0], Outcome.DONE)
        return result

    async def _end(self, worker: PodWorker, number: int, outcome: Outcome, message: str = "") -> None:
        now = self._services.clock.now()
        if not worker.is_done:
            await self._services.overrides.amend(
                worker, lambda overrides: ended(overrides, number, outcome, now, message)
            )

    def _view(self, worker: PodWorker) -> MachineView:
        desired, facts, pod = worker.desired, worker.facts, worker.desired.pod
        status = self._services.board.statuses.get(worker.uid)
        shown = status.virtual_machine_status if status is not None else None
        unit = newest(facts, self._access.name(worker))
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
                    verb=one.verb,
                    detail=one.detail,
                    begun_at=one.begun_at,
                    ended_at=one.ended_at,
                    outcome=one.outcome.value,
                    message=one.message,
                )
                for one in overrides.operations
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
