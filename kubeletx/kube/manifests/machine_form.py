"""The two forms of a virtual machine in a pod, and conversions between them.

The first form is ``spec.virtualMachine``. The second form is one container and ``kubeletx.io/vm-*`` annotations; it is
for API servers that prune unknown fields. `machine_of` returns the same `VirtualMachine` for both. A container is a
machine if the pod has the annotation ``kubeletx.io/workload-type: vm``, or if the pod's runtime class selects a runtime
of virtual machines. The pod itself does not show the latter, so callers pass it as `on_vm_runtime`.
"""

from __future__ import annotations

from typing import Final

import msgspec

from kubeletx.api import VM, names

from ..types.core import (
    Container,
    ContainerResizePolicy,
    Nic,
    Pod,
    VirtualMachine,
    VirtualMachineResizePolicy,
)

TWINS: Final = {
    names.VM_POWER: "powerSpec",
    names.VM_SSH_KEYS: "publicKey",
    names.VM_USER_DATA: "userData",
    names.VM_USER_DATA_BASE64: "userData",
    names.VM_SCRIPT: "cloudInitUserDataScript",
    names.VM_SHUTDOWN_BEHAVIOR: "shutdownBehavior",
    names.VM_BOOT_VOLUME: "bootVolume",
    names.VM_KEY_PAIR: "keyPairName",
    names.VM_CERTIFICATES: "trustedImageCertificate",
}
"""Annotations of the second form, each with the equivalent field of ``spec.virtualMachine``."""

RESTARTS: Final = "RestartContainer"
"""Resize policy of a resource that changes only with a restart of the container or machine."""

POD_TWINS: Final = {names.VM_NICS: "nics", names.VM_VPC: "vpc"}
"""Annotations of the second form, each with the equivalent field of ``spec``."""

HOST_SETTINGS: Final = frozenset(
    {*TWINS, *POD_TWINS, names.VM_META_DATA, names.VM_DISK_SIZE, names.VM_FIRMWARE, names.VM_MAX_CPUS}
    | {names.VM_MAX_MEMORY}
)
"""Annotations that the agent reads itself. Other ``kubeletx.io/vm-*`` annotations are passed on to the runtime."""


def says_machine(pod: Pod) -> bool:
    """Return True if the pod's spec or annotations declare a virtual machine, whatever runtime the pod has."""
    return pod.spec.virtual_machine is not None or pod.metadata.annotations.get(names.WORKLOAD_TYPE) == VM


def machine_of(pod: Pod, *, on_vm_runtime: bool = False) -> VirtualMachine | None:
    """Return the pod's virtual machine, in whichever form it is written; None for a pod of containers.

    `on_vm_runtime`: the pod is assigned to a runtime of virtual machines, so its one container is a machine.
    """
    if pod.spec.virtual_machine is not None:
        return pod.spec.virtual_machine
    if len(pod.spec.containers) != 1 or not (on_vm_runtime or says_machine(pod)):
        return None
    return _from_container(pod.spec.containers[0], pod.metadata.annotations)


def nics_of(pod: Pod) -> tuple[Nic, ...]:
    """Return the network interfaces of the pod's machine, from ``spec.nics`` or the annotation ``kubeletx.io/vm-nics``.

    An interface without a name is called ``eth0``, ``eth1``, ... by its position. Raises ValueError if the
    annotation is not a JSON list of interfaces.
    """
    given = pod.spec.nics
    text = pod.metadata.annotations.get(names.VM_NICS)
    if not given and text:
        try:
            given = msgspec.json.decode(text, type=tuple[Nic, ...])
        except (msgspec.DecodeError, RecursionError) as err:
            raise ValueError(str(err)) from err
    return tuple(
        nic if nic.name else msgspec.structs.replace(nic, name=f"eth{index}")
        for index, nic in enumerate(given)
    )


def vpc_of(pod: Pod) -> str:
    """Return the name of the pod's virtual private cloud, from its spec or annotation; empty if there is none."""
    return pod.spec.vpc or pod.metadata.annotations.get(names.VM_VPC, "")


def power_of(pod: Pod) -> str:
    """Return the power state that the pod requests: Running (the default), Paused, Suspended or Shutdown."""
    machine = pod.spec.virtual_machine
    power = machine.power_spec if machine is not None else pod.metadata.annotations.get(names.VM_POWER)
    return power or "Running"


def as_containers(pod: Pod) -> Pod:
    """Return the pod as a core/v1 object: fields that core/v1 does not have become annotations.

    A machine becomes one container with the machine's name in lower case. A machine's resourcesAllocated is
    left out.
    """
    spec, notes = pod.spec, dict(pod.metadata.annotations)
    if spec.runtime_service_name:
        notes[names.RUNTIME_SERVICE_NAME] = spec.runtime_service_name
    if spec.nics:
        notes[names.VM_NICS] = msgspec.json.encode(spec.nics).decode()
    if spec.vpc:
        notes[names.VM_VPC] = spec.vpc
    containers = spec.containers
    if spec.virtual_machine is not None:
        notes |= {names.WORKLOAD_TYPE: VM, **_annotations(spec.virtual_machine)}
        containers = (_to_container(spec.virtual_machine),)
    return msgspec.structs.replace(
        pod,
        metadata=msgspec.structs.replace(pod.metadata, annotations=notes),
        spec=msgspec.structs.replace(
            spec, containers=containers, virtual_machine=None, nics=(), vpc=None, runtime_service_name=None
        ),
    )


def _to_container(machine: VirtualMachine) -> Container:
    return Container(
        name=machine.name.lower(),
        image=machine.image,
        resources=machine.resources,
        resize_policy=tuple(
            ContainerResizePolicy(
                resource_name=policy.resource_name,
                restart_policy=RESTARTS if policy.policy == RESTARTS else "NotRequired",
            )
            for policy in machine.resize_policy
        ),
        volume_mounts=machine.volume_mounts,
        volume_devices=machine.volume_devices,
        image_pull_policy=machine.image_pull_policy,
    )


def _annotations(machine: VirtualMachine) -> dict[str, str]:
    said = {
        names.VM_POWER: machine.power_spec,
        names.VM_SSH_KEYS: machine.public_key,
        names.VM_USER_DATA_BASE64: machine.user_data,
        names.VM_SCRIPT: machine.cloud_init_user_data_script,
        names.VM_SHUTDOWN_BEHAVIOR: machine.shutdown_behavior,
        names.VM_BOOT_VOLUME: machine.boot_volume,
        names.VM_KEY_PAIR: machine.key_pair_name,
        names.VM_CERTIFICATES: "\n".join(machine.trusted_image_certificate),
    }
    return {key: text for key, text in said.items() if text}


def _from_container(container: Container, annotations: dict[str, str]) -> VirtualMachine:
    return VirtualMachine(
        name=container.name,
        image=container.image,
        resources=container.resources,
        resize_policy=tuple(
            VirtualMachineResizePolicy(
                resource_name=policy.resource_name,
                policy=RESTARTS if policy.restart_policy == RESTARTS else "NoRestart",
            )
            for policy in container.resize_policy
        ),
        volume_mounts=container.volume_mounts,
        volume_devices=container.volume_devices,
        image_pull_policy=container.image_pull_policy,
        key_pair_name=annotations.get(names.VM_KEY_PAIR),
        public_key=annotations.get(names.VM_SSH_KEYS),
        user_data=annotations.get(names.VM_USER_DATA_BASE64),
        cloud_init_user_data_script=annotations.get(names.VM_SCRIPT),
        trusted_image_certificate=tuple(filter(None, annotations.get(names.VM_CERTIFICATES, "").split("\n"))),
        shutdown_behavior=annotations.get(names.VM_SHUTDOWN_BEHAVIOR),
        boot_volume=annotations.get(names.VM_BOOT_VOLUME),
        power_spec=annotations.get(names.VM_POWER),
    )
