"""The containers of a pod by role: init, sidecar, regular, ephemeral. A virtual machine is one regular container."""

from __future__ import annotations

from enum import StrEnum

from kubeletx.api import ObjectRef
from kubeletx.kube.manifests.units import main_containers, main_field, whole_unit
from kubeletx.kube.requests import is_sidecar as is_sidecar
from kubeletx.kube.types.core import AnyUnit, Container, EphemeralContainer, Pod


class UnitRole(StrEnum):
    """Role of a container in its pod, which decides when it starts and whether it runs again."""

    INIT = "init"
    SIDECAR = "sidecar"
    REGULAR = "regular"
    EPHEMERAL = "ephemeral"


def init_units(pod: Pod) -> tuple[Container, ...]:
    """Return the pod's init containers in spec order, including sidecars (restartPolicy Always)."""
    return pod.spec.init_containers


def sidecars(pod: Pod) -> tuple[Container, ...]:
    """Return the pod's sidecars, the init containers with restartPolicy Always, in spec order."""
    return tuple(unit for unit in init_units(pod) if is_sidecar(unit))


def regular_units(pod: Pod) -> tuple[Container, ...]:
    """Return the pod's regular containers in spec order; for a VM pod one container that represents the machine."""
    return main_containers(pod)


def ephemeral_units(pod: Pod) -> tuple[EphemeralContainer, ...]:
    """Return the ephemeral containers, which are never restarted (docs/kubelet-parity.md, row L8)."""
    return pod.spec.ephemeral_containers


def all_units(pod: Pod) -> tuple[Container | EphemeralContainer, ...]:
    """Return the init, regular and ephemeral containers of the pod, in this order."""
    return (*init_units(pod), *regular_units(pod), *ephemeral_units(pod))


def changed_images(before: Pod, after: Pod) -> tuple[str, ...]:
    """Return the names of added containers, and of containers whose image was changed."""
    images = {unit.name: unit.image for unit in all_units(before)}
    return tuple(unit.name for unit in all_units(after) if images.get(unit.name) != unit.image)


def find_unit(pod: Pod, name: str) -> Container | EphemeralContainer | None:
    """Return the container with this name, whatever its role; None if there is none."""
    for unit in all_units(pod):
        if unit.name == name:
            return unit
    return None


def role_of(pod: Pod, name: str) -> UnitRole:
    """Return the role of the container with this name; any unknown name, like a virtual machine, is REGULAR."""
    for container in init_units(pod):
        if container.name == name:
            return UnitRole.SIDECAR if is_sidecar(container) else UnitRole.INIT
    if any(container.name == name for container in ephemeral_units(pod)):
        return UnitRole.EPHEMERAL
    return UnitRole.REGULAR


def spec_of(pod: Pod, name: str, *, own_kernel: bool = False) -> AnyUnit:
    """Return the spec of the container with this name, or of the pod's virtual machine.

    `own_kernel`: the pod's runtime runs virtual machines (`WorkloadFacts.has_own_kernel`). Raises KeyError if the
    pod has no such container.
    """
    whole = whole_unit(pod, own_kernel=own_kernel)
    if whole is not None:
        return whole
    for container in (*init_units(pod), *pod.spec.containers, *ephemeral_units(pod)):
        if container.name == name:
            return container
    raise KeyError(name)


def pod_ref(pod: Pod, field: str = "") -> ObjectRef:
    """Return the pod as the object of an event. `field`: the container it is about, as `field_of` returns it."""
    return ObjectRef(kind="Pod", name=pod.name, namespace=pod.namespace, uid=str(pod.uid), field=field)


def field_of(pod: Pod, container: str) -> str:
    """Return the field path of the container for events, such as ``spec.containers{web}``."""
    if any(c.name == container for c in init_units(pod)):
        return f"spec.initContainers{{{container}}}"
    if any(c.name == container for c in ephemeral_units(pod)):
        return f"spec.ephemeralContainers{{{container}}}"
    return f"{main_field(pod)}{{{container}}}"
