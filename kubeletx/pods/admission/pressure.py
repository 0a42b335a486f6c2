"""Rejection of new pods while the node is under pressure (A1 in docs/kubelet-parity.md).

Critical pods are admitted under any pressure. If memory is the only resource under pressure, pods that are not
BestEffort and pods that tolerate the taint for memory pressure are admitted too. Source: kubelet, eviction_manager.go
(Admit).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeletx.api.names import EVICTED
from kubeletx.kube.qos import BEST_EFFORT, qos_class
from kubeletx.kube.types.core import Toleration
from kubeletx.node.readiness import Pressure

from ..model.facts import DesiredPod, Rejection
from ..model.priority import is_critical

MEMORY_PRESSURE_TAINT = "node.kubernetes.io/memory-pressure"


def check_pressure(desired: DesiredPod, pressure: Pressure) -> Rejection | None:
    """Reject the pod because of the node's pressure; None if there is none or the pod is admitted despite it."""
    pod = desired.pod
    if pressure == Pressure() or is_critical(pod, desired.traits):
        return None
    asks = qos_class(pod.spec) != BEST_EFFORT or tolerates_memory_pressure(pod.spec.tolerations)
    if pressure == Pressure(memory=True) and asks:
        return None
    return Rejection(reason=EVICTED, message=refused(pressure))


def refused(pressure: Pressure) -> str:
    """Return the message for a pod rejected under this pressure; it lists the node's conditions."""
    return f"The node had condition: [{' '.join(conditions(pressure))}]. "


def conditions(pressure: Pressure) -> Sequence[str]:
    """Return the names of the node conditions that are true under this pressure, such as MemoryPressure."""
    named = (
        ("MemoryPressure", pressure.memory),
        ("DiskPressure", pressure.disk),
        ("PIDPressure", pressure.pids),
    )
    return [name for name, is_true in named if is_true]


def tolerates_memory_pressure(tolerations: Iterable[Toleration]) -> bool:
    """Return True if one of the tolerations tolerates the taint memory-pressure:NoSchedule."""
    return any(_tolerates(toleration) for toleration in tolerations)


def _tolerates(toleration: Toleration) -> bool:
    if toleration.effect not in (None, "", "NoSchedule"):
        return False
    if toleration.operator == "Exists":
        return toleration.key in (None, "", MEMORY_PRESSURE_TAINT)
    return (
        toleration.operator in (None, "", "Equal")
        and toleration.key == MEMORY_PRESSURE_TAINT
        and not toleration.value
    )
