"""Conversion between `SandboxSpec` and CRI's PodSandboxConfig.

CRI has no field for `SandboxSpec.hosts`: the agent mounts a hosts file into the containers. The runtime handler is a
field of RunPodSandboxRequest, not of the config, so `sandbox_from_cri` has it as a parameter.
"""

from __future__ import annotations

from kubeletx.api import Dns, PodUid, PortMapping, SandboxSecurity, SandboxSpec
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

from .common import (
    int64_to_cri,
    legacy_profile_from_cri,
    namespaces_from_cri,
    namespaces_to_cri,
    profile_from_cri,
    profile_to_cri,
    resources_from_cri,
    resources_to_cri,
    selinux_from_cri,
    selinux_to_cri,
)


def sandbox_to_cri(spec: SandboxSpec) -> pb.PodSandboxConfig:
    """Convert a sandbox's spec to the config for RunPodSandbox, CreateContainer and PullImage."""
    config = pb.PodSandboxConfig(
        metadata=pb.PodSandboxMetadata(
            name=spec.name, uid=spec.uid, namespace=spec.namespace, attempt=spec.attempt
        ),
        hostname=spec.hostname,
        log_directory=spec.log_directory,
        port_mappings=[port_to_cri(port) for port in spec.ports],
        labels=spec.labels,
        annotations=spec.annotations,
        linux=pb.LinuxPodSandboxConfig(
            cgroup_parent=spec.cgroup_parent,
            security_context=_security_to_cri(spec),
            sysctls=spec.sysctls,
            overhead=None if spec.overhead is None else resources_to_cri(spec.overhead),
            resources=None if spec.resources is None else resources_to_cri(spec.resources),
        ),
    )
    if spec.dns is not None:
        config.dns_config.servers.extend(spec.dns.servers)
        config.dns_config.searches.extend(spec.dns.searches)
        config.dns_config.options.extend(spec.dns.options)
        config.dns_config.SetInParent()
    return config


def sandbox_from_cri(config: pb.PodSandboxConfig, handler: str = "") -> SandboxSpec:
    """Convert the config of a CRI request to a sandbox's spec. `handler`: RunPodSandboxRequest.runtime_handler."""
    linux = config.linux
    return SandboxSpec(
        uid=PodUid(config.metadata.uid),
        name=config.metadata.name,
        namespace=config.metadata.namespace,
        attempt=config.metadata.attempt,
        handler=handler,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
        hostname=config.hostname,
        dns=_dns_from_cri(config.dns_config) if config.HasField("dns_config") else None,
        ports=tuple(port_from_cri(port) for port in config.port_mappings),
        namespaces=namespaces_from_cri(linux.security_context.namespace_options),
        cgroup_parent=linux.cgroup_parent,
        log_directory=config.log_directory,
        sysctls=dict(linux.sysctls),
        security=_security_from_cri(linux.security_context),
        overhead=resources_from_cri(linux.overhead) if linux.HasField("overhead") else None,
        resources=resources_from_cri(linux.resources) if linux.HasField("resources") else None,
    )


def port_to_cri(port: PortMapping) -> pb.PortMapping:
    """Convert a port mapping to CRI. Raises ValueError for a protocol that CRI does not have."""
    return pb.PortMapping(
        protocol=port.protocol,
        container_port=port.container_port,
        host_port=port.host_port,
        host_ip=port.host_ip,
    )


def port_from_cri(port: pb.PortMapping) -> PortMapping:
    """Convert a port mapping from CRI. The protocol becomes text: TCP, UDP or SCTP."""
    return PortMapping(
        container_port=port.container_port,
        host_port=port.host_port,
        protocol=pb.Protocol.Name(port.protocol),
        host_ip=port.host_ip,
    )


def _dns_from_cri(dns: pb.DNSConfig) -> Dns:
    return Dns(servers=tuple(dns.servers), searches=tuple(dns.searches), options=tuple(dns.options))


def _security_to_cri(spec: SandboxSpec) -> pb.LinuxSandboxSecurityContext:
    security = spec.security
    return pb.LinuxSandboxSecurityContext(
        namespace_options=namespaces_to_cri(spec.namespaces),
        selinux_options=selinux_to_cri(security.selinux),
        run_as_user=int64_to_cri(security.run_as_user),
        run_as_group=int64_to_cri(security.run_as_group),
        readonly_rootfs=security.readonly_rootfs,
        supplemental_groups=security.supplemental_groups,
        supplemental_groups_policy=pb.Strict if security.supplemental_groups_strict else pb.Merge,
        privileged=security.privileged,
        seccomp=profile_to_cri(security.seccomp),
        apparmor=profile_to_cri(security.apparmor),
    )


def _security_from_cri(context: pb.LinuxSandboxSecurityContext) -> SandboxSecurity:
    return SandboxSecurity(
        run_as_user=context.run_as_user.value if context.HasField("run_as_user") else None,
        run_as_group=context.run_as_group.value if context.HasField("run_as_group") else None,
        supplemental_groups=tuple(context.supplemental_groups),
        supplemental_groups_strict=context.supplemental_groups_policy == pb.Strict,
        privileged=context.privileged,
        readonly_rootfs=context.readonly_rootfs,
        seccomp=(
            profile_from_cri(context.seccomp)
            if context.HasField("seccomp")
            else legacy_profile_from_cri(context.seccomp_profile_path)
        ),
        apparmor=profile_from_cri(context.apparmor) if context.HasField("apparmor") else None,
        selinux=selinux_from_cri(context.selinux_options) if context.HasField("selinux_options") else None,
    )
