"""Builds the part of a `UnitSpec` that is specific to a virtual machine."""

from __future__ import annotations

from kubeletx.api import Machine
from kubeletx.kube.types.core import Pod, VirtualMachine

from .machine.spec import build_machine


def own_detail(pod: Pod, unit: VirtualMachine) -> Machine:
    """Build `UnitSpec.detail` of a virtual machine: all but its resources, image and mounts. Raises InvalidPod."""
    return build_machine(pod, unit)
