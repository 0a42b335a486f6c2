"""Admission: decides once, before a pod is assigned to a runtime, whether the pod may run on this node."""

from .chain import admit, admit_beside
from .counter import FreedRoom, NodeAdmission
from .node import AdmissionNode, Occupancy, Taken, occupancy_of, taken_by
from .placement import selects
from .sysctls import is_namespaced

__all__ = [
    "AdmissionNode",
    "FreedRoom",
    "NodeAdmission",
    "Occupancy",
    "Taken",
    "admit",
    "admit_beside",
    "is_namespaced",
    "occupancy_of",
    "selects",
    "taken_by",
]
