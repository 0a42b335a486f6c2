"""`HostReadings`: the the agent's view of the machine; tests pass a value of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from kubeletx.api import Blocking
from kubeletx.linux.boot import boot_id
from kubeletx.node.cgroups.trees import CgroupTrees
from kubeletx.node.logind import Logind
from kubeletx.node.pressure import NodeMeasure, measure_node
from kubeletx.pods import HostFacts, ShutdownLock, read_host_facts

from .guard import Kubelet, find_kubelets, is_port_free
from .pod_cgroups import has_swap

APPARMOR = Path("/sys/module/apparmor")


class HostReadings(msgspec.Struct, frozen=True, kw_only=True):
    """State of the machine at the agent's start, and functions that read it later.

    `trees`: its cgroup file systems. `facts`: properties of its kernel, such as sizes of huge pages and swap.
    """

    trees: CgroupTrees
    facts: HostFacts = HostFacts()
    kubelets: tuple[Kubelet, ...] = ()
    """Kubelet processes on the machine."""
    is_port_free: Callable[[str, int], bool] = is_port_free
    """Returns True if no process listens on the address and port."""
    boot_id: str = ""
    """Boot ID of the running kernel; empty: unknown."""
    has_apparmor: bool = False
    has_swap: bool = False
    measure: NodeMeasure = measure_node
    """Reads the eviction signals."""
    logind: Callable[[Blocking], ShutdownLock] = Logind
    """Makes the lock that delays a shutdown of the machine."""


def read_host() -> HostReadings:
    """Read the present state of this machine, such as its cgroup trees and running kubelets."""
    trees = CgroupTrees()
    return HostReadings(
        trees=trees,
        facts=read_host_facts(trees.version),
        kubelets=tuple(find_kubelets()),
        boot_id=boot_id(),
        has_apparmor=APPARMOR.exists(),
        has_swap=has_swap(),
    )
