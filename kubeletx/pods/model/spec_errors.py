"""Errors for a Pod whose sandbox or container specs cannot be built, and names of pods and fields in messages."""

from __future__ import annotations

from typing import Final

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Container, Pod, PodUnit

CREATE_CONTAINER_CONFIG_ERROR: Final = "CreateContainerConfigError"
CONFIG_POD_SANDBOX_ERROR: Final = "ConfigPodSandboxError"


class ContainerConfigError(InvalidPod):
    """The container's spec for its runtime cannot be built (Waiting reason CreateContainerConfigError)."""

    def __init__(self, *, field: str, problem: str, fix: str = "", obj: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, obj=obj, reason=CREATE_CONTAINER_CONFIG_ERROR)


class SandboxConfigError(InvalidPod):
    """The sandbox's spec for its runtime cannot be built (reason ConfigPodSandboxError)."""

    def __init__(self, *, field: str, problem: str, fix: str = "", obj: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, obj=obj, reason=CONFIG_POD_SANDBOX_ERROR)


def path_of(pod: Pod, container: PodUnit) -> str:
    """Return the path of the container in the manifest: ``spec.containers[0]``, or ``spec.virtualMachine``."""
    spec = pod.spec
    lists: tuple[tuple[str, tuple[Container, ...]], ...] = (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    )
    for name, containers in lists:
        for index, other in enumerate(containers):
            if other.name == container.name:
                return f"spec.{name}[{index}]"
    return "spec.virtualMachine"


def describe(pod: Pod) -> str:
    """Return the pod's name as in the kubelet's messages: ``name_namespace(uid)``."""
    return f"{pod.name}_{pod.namespace}({pod.uid})"
