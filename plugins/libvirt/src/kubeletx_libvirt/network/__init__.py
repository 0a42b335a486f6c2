"""The guest's network interfaces: the pod network by CNI, and extra ones on libvirt networks and bridges."""

from .interface_xml import interface_xml
from .links import GuestLink, LinkKind, Route
from .nics import Resolved, resolve_nics
from .pod_links import PodLinks
from .settings import NetworkTarget, PortEntry

__all__ = [
    "GuestLink",
    "LinkKind",
    "NetworkTarget",
    "PodLinks",
    "PortEntry",
    "Resolved",
    "Route",
    "interface_xml",
    "resolve_nics",
]
