"""Builds the status of a machine pod: `virtualMachineStatus`, and the condition that its guest is ready. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from kubeletx.api import UnitState, UnitSummary, names
from kubeletx.kube.manifests.machine_form import machine_of
from kubeletx.kube.text.quantity import from_bytes, to_bytes, to_millicores
from kubeletx.kube.types.core import (
    ContainerStatus,
    Pod,
    PodCondition,
    ResourceRequirements,
    VirtualMachine,
    VirtualMachineStatus,
)

from ...model.facts import PodFacts
from .facts import MachineFacts
from .power import own_hold, was_switched_off

TRUE, FALSE = "True", "False"

_POWER = {
    UnitState.CREATED: "nostate",
    UnitState.RUNNING: "running",
    UnitState.PAUSED: "paused",
    UnitState.SUSPENDED: "suspended",
    UnitState.EXITED: "shutdown",
    UnitState.UNKNOWN: "nostate",
}


_STATES = {UnitState.PAUSED: "Paused", UnitState.SUSPENDED: "Suspended"}
CRASHES = frozenset({"Crashed", "GuestCrashed", "Panicked", "GuestPanicked", "Watchdog", "OOMKilled"})
"""Reasons for the end of a machine that mean a failure of the guest or the emulator."""


def machine_status(
    pod: Pod, facts: PodFacts, statuses: tuple[ContainerStatus, ...]
) -> VirtualMachineStatus | None:
    """Build the value of the pod's `status.virtualMachineStatus`.

    `statuses`: statuses of regular containers; the first is the machine's. None if the pod is not a machine or has no
    container status yet.
    """
    machine = machine_of(pod, on_vm_runtime=facts.of(MachineFacts) is not None)
    if machine is None or not statuses:
        return None
    status = statuses[0]
    unit = facts.newest(status.name)
    ended = status.last_state.terminated
    return VirtualMachineStatus(
        name=machine.name,
        virtual_machine_id=status.container_id,
        image_id=status.image_id or None,
        image=status.image,
        state=_state_word(unit, status, facts),
        last_termination_state=ended.reason if ended is not None else None,
        power_state=_power(unit, status, facts),
        ready=status.ready,
        restart_count=status.restart_count,
        resources=_granted(machine, unit, facts),
    )


def _power(unit: UnitSummary | None, status: ContainerStatus, facts: PodFacts) -> str:
    if unit is None:
        return "nostate"
    ended = status.state.terminated or status.last_state.terminated
    if unit.state is UnitState.EXITED and ended is not None and not was_switched_off(facts, unit):
        return "crashed" if ended.reason in CRASHES else "shutdown"
    return "crashed" if own_hold(facts, unit) in CRASHES else _POWER[unit.state]


def _state_word(unit: UnitSummary | None, status: ContainerStatus, facts: PodFacts) -> str:
    """Return the machine's state for users: Running, Paused, Suspended, Shutdown, Terminated or Waiting."""
    if unit is not None and unit.state in _STATES:
        return _STATES[unit.state]
    if was_switched_off(facts, unit):
        return "Shutdown"
    if status.state.running is not None:
        return "Running"
    return "Terminated" if status.state.terminated is not None else "Waiting"


def _granted(machine: VirtualMachine, unit: UnitSummary | None, facts: PodFacts) -> ResourceRequirements:
    """Return the machine's resources; CPU and memory limits are from the runtime, if it reports them."""
    status = facts.snapshot.status_of(unit.id) if facts.snapshot is not None and unit is not None else None
    granted = status.resources if status is not None else {}
    limits = dict(machine.resources.limits)
    if (cpu := granted.get("cpu_limit_millicores")) is not None:
        limits["cpu"] = _same_or(limits.get("cpu"), cpu, to_millicores, f"{cpu}m")
    elif (vcpus := granted.get("vcpus")) is not None:
        limits["cpu"] = _same_or(limits.get("cpu"), vcpus, _vcpus, str(vcpus))
    memory = granted.get("memory_limit_bytes", granted.get("memory_bytes"))
    if memory is not None:
        limits["memory"] = _same_or(limits.get("memory"), memory, to_bytes, from_bytes(memory))
    return replace(machine.resources, limits=limits)


def _vcpus(text: str) -> int:
    """Convert a CPU quantity to a number of virtual CPUs: rounded up, at least 1."""
    return max(-(-to_millicores(text) // 1000), 1)


def _same_or(text: str | None, actual: int, read: Callable[[str], int], otherwise: str) -> str:
    """Return `text`, the spelling in the manifest, if `read(text)` equals `actual`; else return `otherwise`."""
    return text if text is not None and read(text) == actual else otherwise


def machine_ready(
    containers_ready: PodCondition, resting: PodCondition | None, statuses: Sequence[ContainerStatus]
) -> PodCondition:
    """Build condition `names.VM_READY`: True if the guest runs and is ready, else False with the reason.

    `containers_ready`: the pod's condition ContainersReady. `resting`: its condition UnitsRunning, which exists only
    while the machine is paused, suspended or off. `statuses`: container statuses; the last is the machine's.
    """
    if containers_ready.status == TRUE:
        return PodCondition(type=names.VM_READY, status=TRUE)
    state = statuses[-1].state if statuses else None
    reason, message = containers_ready.reason, containers_ready.message
    if resting is not None:
        reason, message = resting.reason, resting.message
    elif state is not None and state.waiting is not None and state.waiting.reason:
        reason, message = state.waiting.reason, state.waiting.message
    elif state is not None and state.terminated is not None:
        reason, message = state.terminated.reason, state.terminated.message
    return PodCondition(type=names.VM_READY, status=FALSE, reason=reason, message=message)
