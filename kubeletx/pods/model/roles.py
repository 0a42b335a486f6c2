"""Units of a pod by role. A virtual machine is the one regular unit of its pod."""

from __future__ import annotations

from enum import StrEnum

from kubeletx.kube.manifests.units import main_containers, main_field, whole_unit
from kubeletx.kube.requests import is_sidecar as is_sidecar
from kubeletx.kube.types.core import AnyUnit, Container, EphemeralContainer, Pod


class UnitRole(StrEnum):
    """Role of a unit in its pod, which decides when it starts and whether it runs again."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"
    EPHEMERAL = "ephemeral"


def init_units(pod: Pod) -> tuple[Container, ...]:
    """Init containers in spec order, including sidecars (restartPolicy Always)."""
    return pod.spec.init_containers


def regular_units(pod: Pod) -> tuple[Container, ...]:
    """The pod's main containers in spec order; for a VM pod one container that represents the machine."""
    return main_containers(pod)


def ephemeral_units(pod: Pod) -> tuple[EphemeralContainer, ...]:
    """Ephemeral containers: started once, never again (L8 in docs/kubelet-parity.md)."""
    return pod.spec.ephemeral_containers


def all_units(pod: Pod) -> tuple[Container | EphemeralContainer, ...]:
    """Units of every role."""
    return (*init_units(pod), *regular_units(pod), *ephemeral_units(pod))


def find_unit(pod: Pod, name: str) -> Container | EphemeralContainer | None:
    """The container of any role with this name; None if there is none."""
    for unit in all_units(pod):
        if unit.name == name:
            return unit
    return None


def role_of(pod: Pod, name: str) -> UnitRole:
    """Role of the unit with this name; a virtual machine is a regular unit."""
    for container in init_units(pod):
        if container.name == name:
            return UnitRole.SIDECAR if is_sidecar(container) else UnitRole.INIT
    if any(container.name == name for container in ephemeral_units(pod)):
        return UnitRole.EPHEMERAL
    return UnitRole.REGULAR


def spec_of(pod: Pod, name: str, *, own_kernel: bool = False) -> AnyUnit:
    """Return the container with this name, or the machine of a machine pod. Raises KeyError if there is none.

    `own_kernel`: the pod's runtime runs machines (`WorkloadFacts.has_own_kernel`).
    """
    whole = whole_unit(pod, own_kernel=own_kernel)
    if whole is not None:
        return whole
    for container in (*init_units(pod), *pod.spec.containers, *ephemeral_units(pod)):
        if container.name == name:
            return container
    raise KeyError(name)


def field_of(pod: Pod, container: str) -> str:
    """Field path of the container for events, such as ``spec.containers{web}``."""
    if any(c.name == container for c in init_units(pod)):
        return f"spec.initContainers{{{container}}}"
    if any(c.name == container for c in ephemeral_units(pod)):
        return f"spec.ephemeralContainers{{{container}}}"
    return f"{main_field(pod)}{{{container}}}"
