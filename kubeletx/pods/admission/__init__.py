"""Admission: decides once, before a pod is assigned to a runtime, whether the pod may run on this node."""

from .counter import FreedRoom, NodeAdmission
from .node import AdmissionNode
from .placement import selects
from .sysctls import is_namespaced

__all__ = ["AdmissionNode", "FreedRoom", "NodeAdmission", "is_namespaced", "selects"]
