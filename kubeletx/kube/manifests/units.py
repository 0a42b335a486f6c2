"""The pod's main workload whichever way it is written: its containers, or the one machine."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import VM

from ..types.core import Container, Pod, PodUnit, ResourceRequirements
from .machine_form import machine_of


def spec_workload_type(pod: Pod) -> str | None:
    """Return ``vm`` if the spec has a machine; None: its containers may run on a runtime of any workload type."""
    return VM if pod.spec.virtual_machine is not None else None


def main_containers(pod: Pod) -> tuple[Container, ...]:
    """Return the main containers in spec order; for a pod with a machine, one container that represents it."""
    machine = pod.spec.virtual_machine
    if machine is None:
        return pod.spec.containers
    return (
        Container(
            name=machine.name.lower(),
            image=machine.image,
            image_pull_policy=machine.image_pull_policy,
            resources=machine.resources or ResourceRequirements(),
            volume_mounts=machine.volume_mounts,
            volume_devices=machine.volume_devices,
        ),
    )


def main_names(pod: Pod) -> tuple[str, ...]:
    """Names of the main containers, or of the machine, in the spelling of the spec."""
    machine = pod.spec.virtual_machine
    containers = tuple(one.name for one in pod.spec.containers)
    return containers if machine is None else (*containers, machine.name)


def whole_unit(pod: Pod, *, own_kernel: bool = False) -> PodUnit | None:
    """Return the machine if it is the pod's only workload, under its unit's name; None for a pod of containers.

    `own_kernel`: as `on_vm_runtime` of `machine_of`.
    """
    machine = machine_of(pod, on_vm_runtime=own_kernel)
    return replace(machine, name=machine.name.lower()) if machine is not None else None


def main_field(pod: Pod) -> str:
    """Path of the spec's field that holds the main workload: the containers or the machine."""
    return "spec.containers" if pod.spec.virtual_machine is None else "spec.virtualMachine"
