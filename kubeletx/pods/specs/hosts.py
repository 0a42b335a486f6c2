"""Builds the text of the pod's managed /etc/hosts (docs/kubelet-parity.md, row E5).

Other programs recognise a managed file by its first line.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kubeletx.kube.types.core import HostAlias, Pod

from ..model.node_context import NodeContext
from .hostname import host_name

HEADER: Final = "# Kubernetes-managed hosts file.\n"
HEADER_HOST_NETWORK: Final = "# Kubernetes-managed hosts file (host network).\n"
HOSTS_TARGET: Final = "/etc/hosts"

_LOCAL: Final = (
    ("127.0.0.1", "localhost"),
    ("::1", "localhost", "ip6-localhost", "ip6-loopback"),
    ("fe00::0", "ip6-localnet"),
    ("fe00::0", "ip6-mcastprefix"),
    ("fe00::1", "ip6-allnodes"),
    ("fe00::2", "ip6-allrouters"),
)


def hosts_text(pod: Pod, context: NodeContext, pod_ips: Sequence[str]) -> str | None:
    """Return the text of the pod's hosts file.

    None if the pod has no address; its containers then keep the file of their runtime. For a host-network pod the
    text begins with the node's hosts file, if that can be read.
    """
    if pod.spec.host_network:
        return HEADER_HOST_NETWORK + _node_text(context) + _aliases(pod.spec.host_aliases)
    if not pod_ips:
        return None
    names = host_name(pod, context)
    own = (names.full, names.name) if names.domain else (names.name,)
    lines = [*_LOCAL, *((ip, *own) for ip in pod_ips)]
    return HEADER + "".join("\t".join(line) + "\n" for line in lines) + _aliases(pod.spec.host_aliases)


def _node_text(context: NodeContext) -> str:
    try:
        text = context.read_file(context.hosts_file)
    except OSError:  # the node may have no such file
        return ""
    return text if not text or text.endswith("\n") else text + "\n"


def _aliases(aliases: Sequence[HostAlias]) -> str:
    if not aliases:
        return ""
    lines = ("\t".join((alias.ip, *alias.hostnames)) + "\n" for alias in aliases)
    return "\n# Entries added by HostAliases.\n" + "".join(lines)
