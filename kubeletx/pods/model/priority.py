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
    """The pod's priority; higher is more important."""
    if pod.spec.priority is not None:
        return pod.spec.priority
    return _CLASSES.get(pod.spec.priority_class_name or "", 0)


def is_critical(pod: Pod, source: SourceTraits) -> bool:
    """Return True for static and mirror pods and for `CRITICAL_PRIORITY` or more: they are never evicted."""
    if source.is_critical or MIRROR in pod.metadata.annotations:
        return True
    return priority_of(pod) >= CRITICAL_PRIORITY
