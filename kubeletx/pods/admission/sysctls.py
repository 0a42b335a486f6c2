"""Sysctls of pods (E8 in docs/kubelet-parity.md): safe sysctls, and sysctls that the operator allows, are admitted.

A sysctl is safe if it is namespaced and does not influence other pods. The list is from Kubernetes 1.36; every
kernel that this agent runs on has all of them. In a pod, names may be written with slashes instead of dots.
"""

from __future__ import annotations

from kubeletx.kube.types.core import Pod

from ..model.facts import Rejection
from ..specs.sandbox import dotted
from .node import AdmissionNode

SAFE = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_NAMESPACED = frozenset(
    {
        "kernel.sem", "kernel.shm", "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
        "kernel.msg", "kernel.msgmax", "kernel.msgmnb", "kernel.msgmni",
    }
)  # fmt: skip
"""Source: component-helpers, node/util/sysctl/namespace.go; what begins with net. and fs.mqueue. is namespaced, too."""
_IPC = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
_NETWORK = ("net.",)


def check_sysctls(pod: Pod, node: AdmissionNode) -> Rejection | None:
    """Reject a pod with a sysctl that is not allowed, or that belongs to a namespace the pod shares with the node."""
    context = pod.spec.security_context
    for sysctl in context.sysctls if context is not None else ():
        name = dotted(sysctl.name)
        if not is_allowed(name, node.allowed_unsafe_sysctls):
            return _forbidden(f"{sysctl.name!r} is neither safe nor allowed on this node")
        if pod.spec.host_network and name.startswith(_NETWORK):
            return _forbidden(f"{sysctl.name!r} not allowed with host net enabled")
        if pod.spec.host_ipc and name.startswith(_IPC):
            return _forbidden(f"{sysctl.name!r} not allowed with host ipc enabled")
    return None


def is_namespaced(pattern: str) -> bool:
    """Return True if the sysctls of an operator's pattern belong to a namespace that a pod can have for itself."""
    name = dotted(pattern).partition("*")[0]
    return name in _NAMESPACED or name.startswith(("net.", "fs.mqueue."))


def is_allowed(name: str, patterns: tuple[str, ...]) -> bool:
    """Return True if the sysctl is safe or matches one of the operator's patterns; ``*`` at the end matches any rest.

    `name`: written with dots.
    """
    if name in SAFE:
        return True
    for pattern in map(dotted, patterns):
        if pattern == name or (pattern.endswith("*") and name.startswith(pattern[:-1])):
            return True
    return False


def _forbidden(text: str) -> Rejection:
    return Rejection(reason="SysctlForbidden", message=f"forbidden sysctl: {text}")
