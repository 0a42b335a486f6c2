"""Applies operators' requests for size, power and interfaces to the spec with which a machine is created. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import Machine, UnitSpec
from kubeletx.api.names import MADE_WITH_NICS, MADE_WITH_SIZE
from kubeletx.kube.types.core import Pod, VirtualMachine

from ...model.facts import DesiredPod, PodFacts
from .hardware import made_with_nics, size_key, sized, wanted_limits, wanted_nics
from .power import created_power
from .spec import build_nic


def sized_machine(machine: VirtualMachine, pod: Pod, facts: PodFacts) -> VirtualMachine:
    """Return the machine with its desired limits, from the spec or a ``vm resize`` command."""
    limits = wanted_limits(_desired(pod), facts)
    return replace(machine, resources=sized(machine.resources, limits))


def with_overrides(spec: UnitSpec, machine: Machine, pod: Pod, facts: PodFacts) -> UnitSpec:
    """Return the unit's spec with the desired power state and interfaces of the machine.

    Annotations record the interfaces and the size at creation. `machine`: the present `spec.detail`.
    """
    desired = _desired(pod)
    notes = {
        MADE_WITH_NICS: made_with_nics(desired, facts),
        MADE_WITH_SIZE: size_key(wanted_limits(desired, facts)),
    }
    detail = replace(
        machine,
        power=created_power(desired, facts).value,
        nics=tuple(build_nic(nic) for nic in wanted_nics(desired, facts).values()),
    )
    return replace(spec, detail=detail, annotations={**spec.annotations, **notes})


def _desired(pod: Pod) -> DesiredPod:
    return DesiredPod(uid=pod.uid, pod=pod, source="", spec_hash="")
