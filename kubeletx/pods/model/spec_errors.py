"""Errors in a container's part of the manifest, as status and events show them."""

from __future__ import annotations

from typing import Final

from kubeletx.api import InvalidPod
from kubeletx.kube.types.core import Container, Pod, PodUnit

CREATE_CONTAINER_CONFIG_ERROR: Final = "CreateContainerConfigError"
CONFIG_POD_SANDBOX_ERROR: Final = "ConfigPodSandboxError"


class ContainerConfigError(InvalidPod):
    """The container cannot be translated for a runtime (Waiting reason CreateContainerConfigError)."""

    def __init__(self, *, field: str, problem: str, fix: str = "", obj: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, obj=obj, reason=CREATE_CONTAINER_CONFIG_ERROR)


class SandboxConfigError(InvalidPod):
    """The sandbox cannot be translated for a runtime (reason ConfigPodSandboxError)."""

    def __init__(self, *, field: str, problem: str, fix: str = "", obj: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, obj=obj, reason=CONFIG_POD_SANDBOX_ERROR)


def path_of(pod: Pod, container: PodUnit) -> str:
    """Path of the container in the manifest, such as ``spec.containers[0]``."""
    spec = pod.spec
    lists: tuple[tuple[str, tuple[Container, ...]], ...] = (
        ("containers", spec.containers),
        ("initContainers", spec.init_containers),
        ("ephemeralContainers", spec.ephemeral_containers),
    )
    for name, containers in lists:
        for index, one in enumerate(containers):
            if one.name == container.name:
                return f"spec.{name}[{index}]"
    return "spec.virtualMachine"


def describe(pod: Pod) -> str:
    """The pod as the kubelet's messages write it: ``name_namespace(uid)``."""
    return f"{pod.name}_{pod.namespace}({pod.uid})"
