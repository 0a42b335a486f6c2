"""Network interfaces and size of a machine: the desired state, and the plan for changing a running machine. Pure.

Interfaces are listed only when they may have changed since the machine was created. Interface ``eth0``
belongs to the pod network and is never attached or detached. A size is requested once; the unit's status shows the
granted size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from kubeletx.api import NicState, NicStatus, UnitState, UnitSummary
from kubeletx.api.names import MADE_WITH_NICS, MADE_WITH_SIZE, Event
from kubeletx.kube.manifests.machine_form import machine_of, nics_of
from kubeletx.kube.text.numbers import whole_number
from kubeletx.kube.text.quantity import to_bytes, to_millicores
from kubeletx.kube.types.core import Nic, Pod, ResourceRequirements

from ...model.draft import Draft
from ...model.facts import DesiredPod, PodFacts
from ...model.sizes import RESIZED
from ..overrides import overrides_of
from .actions import AttachNic, DetachNic, ListNics, ResizeUnit
from .facts import MachineFacts, MachineUnit, machine_of_facts, machine_unit

FIRST_NIC: Final = "eth0"
LIST_AGAIN_SECONDS: Final = 5.0
_MIB: Final = 1 << 20


def wanted_nics(desired: DesiredPod, facts: PodFacts) -> dict[str, Nic]:
    """Return the desired interfaces by name: the spec's, changed by ``vm nic`` commands of operators.

    Empty if the interfaces in the spec are invalid.
    """
    try:
        wanted = {nic.name or "": nic for nic in nics_of(desired.pod)}
    except ValueError:
        return {}
    overrides = overrides_of(facts)
    if overrides is not None and overrides.nics_spec == nics_key(desired):
        wanted = {name: nic for name, nic in wanted.items() if name not in overrides.nics_removed}
        wanted.update({nic.name or "": nic for nic in overrides.nics_added})
    return wanted


def nics_key(desired: DesiredPod) -> str:
    """Return the names of the interfaces in the spec as one text; empty if they are invalid.

    The text is stored with a ``vm nic`` command, which is ignored once the spec has other interfaces.
    """
    try:
        return ",".join(sorted(nic.name or "" for nic in nics_of(desired.pod)))
    except ValueError:
        return ""


def made_with_nics(desired: DesiredPod, facts: PodFacts) -> str:
    """Return the names of the desired interfaces as one text, for an annotation on a machine that is created."""
    return ",".join(sorted(wanted_nics(desired, facts)))


def wanted_limits(desired: DesiredPod, facts: PodFacts) -> dict[str, str]:
    """Return the desired limits of the machine: the spec's, changed by a ``vm resize`` command.

    The command is ignored once the CPU or memory limits in the spec have changed.
    """
    machine = machine_of(desired.pod, on_vm_runtime=facts.of(MachineFacts) is not None)
    limits = dict(machine.resources.limits) if machine is not None else {}
    overrides = overrides_of(facts)
    if overrides is not None and overrides.resources and overrides.resources_spec == sizes_of(limits):
        limits.update(overrides.resources)
    return limits


def sized_pod(desired: DesiredPod, facts: PodFacts) -> Pod:
    """Return a copy of the pod for admission, in which the machine's desired limits replace the spec's."""
    pod, spec = desired.pod, desired.pod.spec
    limits = wanted_limits(desired, facts)
    if spec.virtual_machine is not None:
        machine = replace(spec.virtual_machine, resources=sized(spec.virtual_machine.resources, limits))
        return replace(pod, spec=replace(spec, virtual_machine=machine))
    if len(spec.containers) != 1:
        return pod
    container = replace(spec.containers[0], resources=sized(spec.containers[0].resources, limits))
    return replace(pod, spec=replace(spec, containers=(container,)))


def sized(resources: ResourceRequirements, limits: dict[str, str]) -> ResourceRequirements:
    """Return `resources` with `limits` as the new limits.

    A request that was equal to its old limit is set to the new limit, which keeps the QoS class.
    """
    before = resources.limits
    follows = {
        name for name, text in resources.requests.items() if before.get(name) == text and name in limits
    }
    requests = {name: limits[name] if name in follows else text for name, text in resources.requests.items()}
    return replace(resources, limits=limits, requests=requests)


def sizes_of(limits: dict[str, str]) -> dict[str, str]:
    """Return only the CPU and memory limits, which can change while the machine runs."""
    return {name: limits[name] for name in RESIZED if name in limits}


def size_key(limits: dict[str, str]) -> str:
    """Return the CPU and memory limits as normalised text, such as ``2000m/1073741824``; a missing limit is 0.

    Empty if a limit is not a valid quantity.
    """
    cpu, memory = limits.get("cpu"), limits.get("memory")
    try:
        return f"{to_millicores(cpu) if cpu else 0}m/{to_bytes(memory) if memory else 0}"
    except ValueError:
        return ""


def asked_size(unit: UnitSummary, facts: PodFacts) -> str | None:
    """Return the size last requested from the runtime for this machine, else its size at creation (see `size_key`).

    None while the pod's overrides file was not read, or if the size is not recorded.
    """
    overrides = overrides_of(facts)
    if overrides is None:
        return None
    return overrides.size_asked if overrides.size_unit == unit.id else unit.annotations.get(MADE_WITH_SIZE)


def with_size(resources: ResourceRequirements, size: str) -> ResourceRequirements:
    """Return `resources` with the CPU and memory limits of `size`, a text of `size_key`.

    A limit that is already equal keeps its spelling. An invalid size, as from an edited annotation, changes nothing.
    """
    cpu_text, _, memory_text = size.partition("m/")
    cpu, memory = whole_number(cpu_text), whole_number(memory_text)
    if cpu is None or memory is None:
        return resources
    limits = dict(resources.limits)
    amounts = {"cpu": (cpu, to_millicores, _cpu_text), "memory": (memory, to_bytes, _memory_text)}
    for name, (amount, read, write) in amounts.items():
        if not amount:
            limits.pop(name, None)
        elif name not in limits or read(limits[name]) != amount:
            limits[name] = write(amount)
    return sized(resources, limits)


def _cpu_text(millicores: int) -> str:
    return f"{millicores}m" if millicores % 1000 else str(millicores // 1000)


def _memory_text(amount: int) -> str:
    return str(amount) if amount % _MIB else f"{amount // _MIB}Mi"


def plan_devices(unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    """Plan the next change of a running machine's size and interfaces.

    Nothing is planned while the machine is paused, suspended or off.
    """
    if unit.state is not UnitState.RUNNING:
        return
    _plan_size(unit, desired, facts, draft)
    _plan_nics(unit, desired, facts, draft)


def _plan_size(unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    overrides = overrides_of(facts)
    made = unit.annotations.get(MADE_WITH_SIZE)
    if overrides is None or made is None:
        return
    wanted = size_key(wanted_limits(desired, facts))
    asked = asked_size(unit, facts) or made
    if wanted == asked or not wanted:
        return
    if _needs_restart(desired, facts, asked, wanted):
        text = f"Machine {unit.name} gets another size, will be restarted"
        draft.stop(unit, facts, "Resized", text)
    elif not machine_of_facts(facts).can_resize:
        draft.refuse(
            Event.RESIZE_UNSUPPORTED, f"runtime {facts.runtime} cannot resize {unit.name} while it runs"
        )
    elif draft.is_due(facts.unit(unit.name).resize_failure):
        draft.do(ResizeUnit(name=unit.name, unit_id=unit.id, size=wanted))


def _needs_restart(desired: DesiredPod, facts: PodFacts, before: str, after: str) -> bool:
    """Return True if a resource that changes between two sizes has resizePolicy RestartContainer.

    `before`, `after`: texts of `size_key`.
    """
    machine = machine_of(desired.pod, on_vm_runtime=facts.of(MachineFacts) is not None)
    policies = {rule.resource_name: rule.policy for rule in machine.resize_policy} if machine else {}
    pairs = zip(RESIZED, before.split("/"), after.split("/"), strict=False)
    return any(old != new and policies.get(name) == "RestartContainer" for name, old, new in pairs)


def _plan_nics(unit: UnitSummary, desired: DesiredPod, facts: PodFacts, draft: Draft) -> None:
    known = machine_unit(facts, unit.name)
    wanted = wanted_nics(desired, facts)
    made = unit.annotations.get(MADE_WITH_NICS, "")
    seen = known.nics if known.nics_unit == unit.id else None
    differs = ",".join(sorted(wanted)) != made
    if seen is None and not differs and not (facts.recovered and machine_of_facts(facts).can_nics):
        return
    if not machine_of_facts(facts).can_nics:
        if differs:
            text = f"runtime {facts.runtime} cannot change the interfaces of {unit.name} while it runs"
            draft.refuse(Event.NIC_UNSUPPORTED, text)
        return
    if not draft.is_due(known.nic_failure):
        return
    if seen is None or known.nics_stale:
        draft.do(ListNics(name=unit.name, unit_id=unit.id))
        return
    step = _next_nic(unit, wanted, seen, known, draft)
    if step is not None:
        draft.do(step)
        return
    if any(nic.state is not NicState.ATTACHED for nic in seen):
        at = (known.nics_at or draft.now.mono) + LIST_AGAIN_SECONDS
        if at <= draft.now.mono:
            draft.do(ListNics(name=unit.name, unit_id=unit.id))
        else:
            draft.wake(at)


def _next_nic(
    unit: UnitSummary, wanted: Mapping[str, Nic], seen: Sequence[NicStatus], known: MachineUnit, draft: Draft
) -> AttachNic | DetachNic | None:
    """Return the action that attaches or detaches the next interface; None if there is nothing to do now.

    `wanted`: desired interfaces by name. `seen`: present interfaces. An interface that failed waits for its retry and
    does not delay others.
    """
    present = {nic.name: nic for nic in seen}
    for name, nic in wanted.items():
        if name not in present and name != FIRST_NIC and draft.is_due(known.nic_failures.get(name)):
            return AttachNic(name=unit.name, unit_id=unit.id, nic=nic)
    for name, nic_status in present.items():
        if name in wanted or name == FIRST_NIC or nic_status.state is NicState.DETACHING:
            continue
        if draft.is_due(known.nic_failures.get(name)):
            return DetachNic(name=unit.name, unit_id=unit.id, nic_name=name)
    return None
