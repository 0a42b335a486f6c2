"""The main workload of a pod: its regular containers, or its one virtual machine."""

from __future__ import annotations

from msgspec.structs import replace

from kubeletx.api import VM

from ..types.core import Container, Pod, PodUnit, ResourceRequirements
from .machine_form import machine_of


def spec_workload_type(pod: Pod) -> str | None:
    """Return the workload type that the spec requires: ``vm`` if it has a virtual machine.

    Returns None for a pod of containers, which may run on a runtime of any workload type.
    """
    return VM if pod.spec.virtual_machine is not None else None


def main_containers(pod: Pod) -> tuple[Container, ...]:
    """Return the regular containers in spec order; for ``spec.virtualMachine``, one container that represents it.

    That container has the machine's name in lower case, and its image, resources, mounts and devices.
    """
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
    """Return the names of the regular containers, or of the machine, in the spelling of the spec."""
    machine = pod.spec.virtual_machine
    containers = tuple(container.name for container in pod.spec.containers)
    return containers if machine is None else (*containers, machine.name)


def whole_unit(pod: Pod, *, own_kernel: bool = False) -> PodUnit | None:
    """Return the pod's virtual machine, with its name in lower case; None for a pod of containers.

    `own_kernel`: the pod is assigned to a runtime of virtual machines, so its one container is a machine.
    """
    machine = machine_of(pod, on_vm_runtime=own_kernel)
    return replace(machine, name=machine.name.lower()) if machine is not None else None


def main_field(pod: Pod) -> str:
    """Return the path of the field with the main workload: ``spec.containers`` or ``spec.virtualMachine``."""
    return "spec.containers" if pod.spec.virtual_machine is None else "spec.virtualMachine"
