"""Derives the host name and domain of a pod. Source: kubelet, kubelet_pods.go GeneratePodHostNameAndDomain."""

from __future__ import annotations

from typing import Final, NamedTuple

from kubeletx.kube.types.core import Pod

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
