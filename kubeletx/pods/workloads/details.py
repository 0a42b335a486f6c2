"""Details of units that are no containers: what their runtime needs besides resources, image and mounts."""

from __future__ import annotations

from kubeletx.api import Machine
from kubeletx.kube.types.core import Pod, VirtualMachine

from .machine.spec import build_machine


def own_detail(pod: Pod, unit: VirtualMachine) -> Machine:
    """Build the machine's own part of the unit's specification. Raises InvalidPod for invalid fields."""
    return build_machine(pod, unit)
