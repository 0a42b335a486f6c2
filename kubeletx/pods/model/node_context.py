"""`NodeContext`: everything about the node that the translation of a Pod depends on.

Made once by the agent from its configuration and passed down; a changed node means a new value.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec

from kubeletx.api import PodUid
from kubeletx.kube.types.core import Pod
from kubeletx.volumes import layout
from kubeletx.volumes.pod_fields import FieldContext


def read_host_file(path: Path) -> str:
    """Text of a small file of the node. Bytes that are not UTF-8 are replaced."""
    return path.read_text(encoding="utf-8", errors="replace")


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Properties and settings of the node on which pods depend: paths, addresses, sizes, kernel features."""

    agent_id: str
    node_name: str
    root_dir: Path
    pod_logs_dir: Path = Path("/var/log/pods")
    host_ips: tuple[str, ...] = ()
    """Addresses of the node, primary first, at most one per family."""
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: Path | None = Path("/etc/resolv.conf")
    """Resolver file of the host; None: pods get no name servers of the host."""
    hosts_file: Path = Path("/etc/hosts")
    """File whose content begins the hosts file of host-network pods."""
    allocatable: dict[str, int] = {}
    """Allocatable amounts by resource name; CPU in millicores, all others in whole units."""
    memory_capacity_bytes: int = 0
    """Memory of the node; 0 if unknown, then Burstable pods get the middle of the OOM score range."""
    swap_capacity_bytes: int = 0
    memory_swap: str = "NoSwap"
    """NoSwap or LimitedSwap. Only used where `swap_controller` is True."""
    swap_controller: bool = False
    """True if cgroups of this node can limit swap."""
    cgroup_version: int = 2
    cgroup_root: str = ""
    """Cgroup that is the parent of all pods' cgroups; empty is the root of the tree."""
    cpu_cfs_quota: bool = True
    cpu_cfs_quota_period_us: int = 100_000
    single_process_oom_kill: bool = False
    hugepage_sizes: tuple[str, ...] = ()
    """Page sizes that the kernel offers, such as 2MB and 1GB; containers get 0 of each by default."""
    pod_pids_limit: int = -1
    seccomp_default: bool = False
    seccomp_dir: Path | None = None
    """Directory of Localhost profiles; None means ``<root_dir>/seccomp``."""
    allowed_unsafe_sysctls: tuple[str, ...] = ()
    recursive_read_only: bool = False
    """True if the kernel supports recursive read-only mounts (5.12 and later); the runtime must support them too."""
    read_file: Callable[[Path], str] = read_host_file
    """Reads a host file. This package reads the host's files through it only."""

    @property
    def seccomp_directory(self) -> Path:
        """Directory in which Localhost seccomp profiles are looked up."""
        return self.seccomp_dir or self.root_dir / "seccomp"

    def log_directory(self, pod: Pod) -> Path:
        """Directory of the pod's container logs: ``<namespace>_<name>_<uid>``."""
        parts = (
            layout.check_name(pod.namespace, "metadata.namespace"),
            layout.check_name(pod.name, "metadata.name"),
            layout.check_name(pod.uid, "metadata.uid"),
        )
        return self.pod_logs_dir / "_".join(parts)

    def pod_directory(self, uid: PodUid) -> Path:
        """Directory of the pod's volumes and files."""
        return layout.pod_dir(self.root_dir, uid)

    def fields(self, pod_ips: tuple[str, ...] = ()) -> FieldContext:
        """Values for fieldRef and resourceFieldRef of the downward API."""
        return FieldContext(
            node_name=self.node_name,
            host_ips=self.host_ips,
            pod_ips=pod_ips,
            allocatable=self.allocatable,
        )
