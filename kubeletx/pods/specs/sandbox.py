"""Converts a Pod to its `SandboxSpec`, which has the same form for every runtime."""

from __future__ import annotations

from kubeletx.api import HostEntry, PortMapping, SandboxSpec
from kubeletx.kube.types.core import Pod

from ..model.node_context import NodeContext
from ..model.roles import sidecars
from .dns import PodWarning, build_dns
from .hosts import sandbox_hostname
from .inputs import SandboxInputs
from .labels import sandbox_annotations, sandbox_labels
from .resources import overhead_resources, sandbox_resources
from .security import pod_namespaces, sandbox_security


def build_sandbox_spec(inputs: SandboxInputs) -> SandboxSpec:
    """Build the spec of the pod's sandbox. Raises InvalidPod or Unavailable with reason ConfigPodSandboxError."""
    pod, context = inputs.pod, inputs.node
    return SandboxSpec(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        attempt=inputs.attempt,
        handler=inputs.handler,
        labels=sandbox_labels(pod, context, inputs.runtime_name),
        annotations=sandbox_annotations(
            pod,
            source=inputs.source,
            spec_hash=inputs.spec_hash,
            runtime_kind=inputs.runtime_kind,
            workload_type=inputs.workload_type,
        ),
        hostname=sandbox_hostname(pod, context),
        dns=build_dns(pod, context).dns,
        hosts=tuple(HostEntry(ip=alias.ip, names=alias.hostnames) for alias in pod.spec.host_aliases),
        ports=_ports(pod),
        namespaces=pod_namespaces(pod, user_mappings=inputs.user_mappings),
        cgroup_parent=inputs.cgroup_parent,
        log_directory=str(context.log_directory(pod)),
        sysctls=_sysctls(pod),
        security=sandbox_security(pod),
        overhead=overhead_resources(pod, context),
        resources=sandbox_resources(pod, context),
    )


def sandbox_warnings(pod: Pod, context: NodeContext) -> tuple[PodWarning, ...]:
    """Return warnings about the pod's resolver settings; the caller records them as events, once per sandbox."""
    return build_dns(pod, context).warnings


def _ports(pod: Pod) -> tuple[PortMapping, ...]:
    """Return the port mappings of the pod's containers and sidecars; none with host network."""
    if pod.spec.host_network:
        return ()
    return tuple(
        PortMapping(
            container_port=port.container_port,
            host_port=port.host_port or 0,
            protocol=port.protocol or "TCP",
            host_ip=port.host_ip or "",
        )
        for container in (*sidecars(pod), *pod.spec.containers)
        for port in container.ports
    )


def _sysctls(pod: Pod) -> dict[str, str]:
    if pod.spec.security_context is None:
        return {}
    return {dotted(sysctl.name): sysctl.value for sysctl in pod.spec.security_context.sysctls}


def dotted(name: str) -> str:
    """Return the sysctl name with dots between its parts.

    ``net/ipv4/conf/eth0.1/x`` becomes ``net.ipv4.conf.eth0/1.x``; a name with dots is returned unchanged.
    """
    separator = next((char for char in name if char in "./"), ".")
    return name if separator == "." else name.translate(str.maketrans("./", "/."))
