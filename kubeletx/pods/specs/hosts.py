"""Host name and domain of a pod, and the text of its managed /etc/hosts (docs/kubelet-parity.md, row E5).

Other programs recognise a managed file by its first line. Source: kubelet, kubelet_pods.go GeneratePodHostNameAndDomain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from kubeletx.kube.types.core import HostAlias, Pod

from ..model.node_context import NodeContext
from ..model.spec_errors import SandboxConfigError

MAX_HOSTNAME: Final = 63
MAX_FQDN: Final = 64


class HostName(NamedTuple):
    """Host name and domain of a pod. `domain` is empty unless the pod has a subdomain."""

    name: str
    domain: str

    @property
    def full(self) -> str:
        """``name.domain``, or only the name if the domain is empty."""
        return f"{self.name}.{self.domain}" if self.domain else self.name


def host_name(pod: Pod, context: NodeContext) -> HostName:
    """Derive the pod's host name and domain.

    The name is spec.hostnameOverride, spec.hostname, or the pod's name cut to 63 characters. Raises InvalidPod if
    nothing is left of the pod's name.
    """
    spec = pod.spec
    if spec.hostname_override is not None:
        return HostName(spec.hostname_override, "")
    name = spec.hostname or pod.name[:MAX_HOSTNAME].rstrip("-.")
    if not name:
        raise SandboxConfigError(
            field="metadata.name", problem=f"{pod.name!r} gives no host name", fix="set spec.hostname"
        )
    domain = ""
    if spec.subdomain:
        domain = f"{spec.subdomain}.{pod.namespace}.svc.{context.cluster_domain}"
    return HostName(name, domain)


def sandbox_hostname(pod: Pod, context: NodeContext) -> str:
    """Return the host name of the pod's sandbox; with `setHostnameAsFQDN` the fully qualified name.

    Empty for a host-network pod. Raises InvalidPod if the fully qualified name is longer than 64 characters.
    """
    if pod.spec.host_network:
        return ""
    names = host_name(pod, context)
    if not pod.spec.set_hostname_as_fqdn:
        return names.name
    if len(names.full) > MAX_FQDN:
        raise SandboxConfigError(
            field="spec.setHostnameAsFQDN",
            problem=f"failed to construct FQDN from pod hostname and cluster domain, FQDN {names.full} is too "
            f"long ({MAX_FQDN} characters is the max, {len(names.full)} characters requested)",
            fix="shorten spec.hostname or spec.subdomain",
        )
    return names.full


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
