"""`NodeContext`: the properties of the node that are needed to build sandbox and container specs from a Pod.

The agent creates it once from its configuration. It is frozen: if the node changes, a new one is created.
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
    """Read a small text file of the node. Bytes that are not UTF-8 are replaced."""
    return path.read_text(encoding="utf-8", errors="replace")


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Properties and settings of the node on which pods depend: paths, addresses, sizes, kernel features."""

    agent_id: str
    node_name: str
    root_dir: Path
    pod_logs_dir: Path = Path("/var/log/pods")
    host_ips: tuple[str, ...] = ()
    """Addresses of the node, the primary one first, at most one per IP family."""
    in_cluster: bool = False
    cluster_dns: tuple[str, ...] = ()
    cluster_domain: str = ""
    resolv_conf: Path | None = Path("/etc/resolv.conf")
    """Resolver file of the host; None: pods do not get the host's name servers."""
    hosts_file: Path = Path("/etc/hosts")
    """Hosts file of the node; the hosts file of a host-network pod begins with its content."""
    allocatable: dict[str, int] = {}
    """Allocatable amounts by resource name; CPU in millicores, all others in whole units."""
    memory_capacity_bytes: int = 0
    """Memory of the node. 0 if unknown; then memory requests do not lower the OOM scores of Burstable pods."""
    swap_capacity_bytes: int = 0
    memory_swap: str = "NoSwap"
    """NoSwap or LimitedSwap. Used only if `swap_controller` is True."""
    swap_controller: bool = False
    """True if the node's cgroups can limit swap."""
    cgroup_version: int = 2
    cgroup_root: str = ""
    """Parent cgroup of all pods' cgroups; empty: the root of the cgroup tree."""
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
    """Function that reads a text file of the host; tests replace it."""

    @property
    def seccomp_directory(self) -> Path:
        """Directory in which Localhost seccomp profiles are looked up."""
        return self.seccomp_dir or self.root_dir / "seccomp"

    def log_directory(self, pod: Pod) -> Path:
        """Return the directory of the pod's container logs: ``<pod_logs_dir>/<namespace>_<name>_<uid>``."""
        parts = (
            layout.check_name(pod.namespace, "metadata.namespace"),
            layout.check_name(pod.name, "metadata.name"),
            layout.check_name(pod.uid, "metadata.uid"),
        )
        return self.pod_logs_dir / "_".join(parts)

    def pod_directory(self, uid: PodUid) -> Path:
        """Return the directory of the pod's volumes and files."""
        return layout.pod_dir(self.root_dir, uid)

    def fields(self, pod_ips: tuple[str, ...] = ()) -> FieldContext:
        """Return the values that fieldRef and resourceFieldRef need in addition to the Pod itself.

        `pod_ips`: the pod's addresses.
        """
        return FieldContext(
            node_name=self.node_name,
            host_ips=self.host_ips,
            pod_ips=pod_ips,
            allocatable=self.allocatable,
        )
