"""Priority of a pod, and whether it is critical. Pure.

An API server sets `spec.priority` from the pod's class. Static manifests have none, so the two built-in classes
(system-node-critical, system-cluster-critical) are resolved here.
"""

from __future__ import annotations

from typing import Final

from kubeletx.kube.types.core import Pod

from .sources import SourceTraits

CRITICAL_PRIORITY: Final = 2_000_000_000
MIRROR: Final = "kubernetes.io/config.mirror"
_CLASSES: Final = {
    "system-cluster-critical": CRITICAL_PRIORITY,
    "system-node-critical": CRITICAL_PRIORITY + 1000,
}


def priority_of(pod: Pod) -> int:
    """Return the pod's priority, a higher number for a more important pod; 0 without priority and built-in class."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    return _CLASSES.get(pod.spec.priority_class_name or "", 0)


def is_critical(pod: Pod, source: SourceTraits) -> bool:
    """Return True if the pod is critical, and therefore never evicted.

    Critical are pods of sources with `is_critical`, mirror pods, and pods with `CRITICAL_PRIORITY` or more.
    """
    if source.is_critical or MIRROR in pod.metadata.annotations:
        return True
    return priority_of(pod) >= CRITICAL_PRIORITY
