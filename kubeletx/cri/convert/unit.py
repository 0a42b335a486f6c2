"""Conversion between `UnitSpec` and CRI's ContainerConfig, for units whose `detail` is a `Process`.

A mount of a block device becomes a device of the container, as in the kubelet. CRI has no fields for the volume name
and the disk format of a `Mount`; `kubeletx.api` has no fields for CRI's ambient capabilities and mount options.
"""

from __future__ import annotations

from typing import cast

from kubeletx.api import (
    Capabilities,
    Device,
    EnvVar,
    Mount,
    MountPropagation,
    Process,
    ProcessSecurity,
    SourceKind,
    UnitSpec,
    Unsupported,
)
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

from .common import (
    id_mappings_from_cri,
    id_mappings_to_cri,
    image_spec_from_cri,
    image_spec_to_cri,
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

_PROPAGATION_TO_CRI = {
    MountPropagation.PRIVATE: pb.PROPAGATION_PRIVATE,
    MountPropagation.HOST_TO_CONTAINER: pb.PROPAGATION_HOST_TO_CONTAINER,
    MountPropagation.BIDIRECTIONAL: pb.PROPAGATION_BIDIRECTIONAL,
}
_PROPAGATION_FROM_CRI = {value: key for key, value in _PROPAGATION_TO_CRI.items()}

_SIGNAL_PREFIX = "SIGNAL_"


def unit_to_cri(spec: UnitSpec) -> pb.ContainerConfig:
    """Convert a unit's spec to the config for CreateContainer.

    Raises Unsupported if the unit is not a process, has a disk image, or has an unknown stop signal.
    """
    process = spec.detail
    if not isinstance(process, Process):
        raise Unsupported(f"{spec.name}: a CRI server runs processes, not {type(process).__name__}")
    devices = [device_to_cri(device) for device in process.devices]
    mounts = []
    for mount in spec.mounts:
        if mount.kind is SourceKind.BLOCK_DEVICE:
            devices.append(_block_device_to_cri(mount))
        else:
            mounts.append(mount_to_cri(mount))
    return pb.ContainerConfig(
        metadata=pb.ContainerMetadata(name=spec.name, attempt=spec.attempt),
        image=image_spec_to_cri(spec.image),
        command=process.command,
        args=process.args,
        working_dir=process.working_dir,
        envs=[
            pb.KeyValue(key=env.name, value=env.value.encode("utf-8", "surrogateescape"))
            for env in spec.environment
        ],
        mounts=mounts,
        devices=devices,
        labels=spec.labels,
        annotations=spec.annotations,
        log_path=spec.log_path,
        stdin=process.stdin,
        stdin_once=process.stdin_once,
        tty=process.tty,
        linux=pb.LinuxContainerConfig(
            resources=resources_to_cri(spec.resources),
            security_context=_security_to_cri(process.security),
        ),
        CDI_devices=[pb.CDIDevice(name=name) for name in process.cdi_devices],
        stop_signal=signal_to_cri(process.stop_signal),
    )


def unit_from_cri(config: pb.ContainerConfig) -> UnitSpec:
    """Convert the config of a CreateContainer request to a unit's spec."""
    return UnitSpec(
        name=config.metadata.name,
        attempt=config.metadata.attempt,
        image=image_spec_from_cri(config.image),
        detail=Process(
            command=tuple(config.command),
            args=tuple(config.args),
            working_dir=config.working_dir,
            stdin=config.stdin,
            stdin_once=config.stdin_once,
            tty=config.tty,
            stop_signal=signal_from_cri(config.stop_signal),
            devices=tuple(device_from_cri(device) for device in config.devices),
            cdi_devices=tuple(device.name for device in config.CDI_devices),
            security=_security_from_cri(config.linux.security_context),
        ),
        environment=tuple(
            EnvVar(name=env.key, value=env.value.decode("utf-8", "surrogateescape")) for env in config.envs
        ),
        resources=resources_from_cri(config.linux.resources),
        mounts=tuple(mount_from_cri(mount) for mount in config.mounts),
        log_path=config.log_path,
        labels=dict(config.labels),
        annotations=dict(config.annotations),
    )


def mount_to_cri(mount: Mount) -> pb.Mount:
    """Convert a mount of a directory, file or container image to CRI.

    Raises Unsupported for a block device or a disk image.
    """
    if mount.kind is not SourceKind.DIRECTORY:
        raise Unsupported(f"mount {mount.target}: a container cannot use a {mount.kind.value}")
    return pb.Mount(
        container_path=mount.target,
        host_path=mount.source,
        readonly=mount.read_only,
        selinux_relabel=mount.selinux_relabel,
        propagation=_PROPAGATION_TO_CRI[mount.propagation],
        uidMappings=id_mappings_to_cri(mount.user_mappings),
        gidMappings=id_mappings_to_cri(mount.group_mappings),
        recursive_read_only=mount.recursive_read_only,
        image=pb.ImageSpec(image=mount.image) if mount.image else None,
        image_sub_path=mount.image_sub_path,
    )


def mount_from_cri(mount: pb.Mount) -> Mount:
    """Convert a mount of a directory, file or container image from CRI."""
    return Mount(
        source=mount.host_path,
        target=mount.container_path,
        read_only=mount.readonly,
        recursive_read_only=mount.recursive_read_only,
        propagation=_PROPAGATION_FROM_CRI[mount.propagation],
        selinux_relabel=mount.selinux_relabel,
        user_mappings=id_mappings_from_cri(mount.uidMappings),
        group_mappings=id_mappings_from_cri(mount.gidMappings),
        image=mount.image.image,
        image_sub_path=mount.image_sub_path,
    )


def device_to_cri(device: Device) -> pb.Device:
    """Convert one device node to CRI."""
    return pb.Device(
        container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
    )


def device_from_cri(device: pb.Device) -> Device:
    """Convert one device node from CRI."""
    return Device(
        container_path=device.container_path, host_path=device.host_path, permissions=device.permissions
    )


def signal_to_cri(name: str) -> pb.Signal:
    """Convert the name of a signal to CRI, such as SIGTERM, TERM, SIGRTMINPLUS3 or SIGRTMIN+3.

    An empty name is the runtime's default signal. Raises Unsupported for an unknown name.
    """
    if not name:
        return pb.SIGNAL_RUNTIME_DEFAULT
    word = name.upper().replace("+", "PLUS").replace("-", "MINUS")
    word = word if word.startswith("SIG") else f"SIG{word}"
    try:
        return cast("pb.Signal", pb.Signal.Value(_SIGNAL_PREFIX + word))
    except ValueError:
        raise Unsupported(
            f"stop signal {name!r} is not a signal of the CRI; use one of Linux, such as SIGTERM or SIGRTMIN+1"
        ) from None


def signal_from_cri(signal: pb.Signal) -> str:
    """Return the name of a CRI signal, such as SIGTERM; empty for the runtime's default signal."""
    if signal == pb.SIGNAL_RUNTIME_DEFAULT:
        return ""
    return pb.Signal.Name(signal).removeprefix(_SIGNAL_PREFIX)


def _block_device_to_cri(mount: Mount) -> pb.Device:
    return pb.Device(
        container_path=mount.target,
        host_path=mount.source,
        permissions="r" if mount.read_only else "mrw",
    )


def _security_to_cri(security: ProcessSecurity) -> pb.LinuxContainerSecurityContext:
    return pb.LinuxContainerSecurityContext(
        capabilities=pb.Capability(
            add_capabilities=security.capabilities.add, drop_capabilities=security.capabilities.drop
        ),
        privileged=security.privileged,
        namespace_options=namespaces_to_cri(security.namespaces),
        selinux_options=selinux_to_cri(security.selinux),
        run_as_user=int64_to_cri(security.run_as_user),
        run_as_group=int64_to_cri(security.run_as_group),
        run_as_username=security.run_as_username,
        readonly_rootfs=security.readonly_rootfs,
        supplemental_groups=security.supplemental_groups,
        supplemental_groups_policy=pb.Strict if security.supplemental_groups_strict else pb.Merge,
        no_new_privs=security.no_new_privs,
        masked_paths=security.masked_paths,
        readonly_paths=security.readonly_paths,
        seccomp=profile_to_cri(security.seccomp),
        apparmor=profile_to_cri(security.apparmor),
    )


def _security_from_cri(context: pb.LinuxContainerSecurityContext) -> ProcessSecurity:
    return ProcessSecurity(
        run_as_user=context.run_as_user.value if context.HasField("run_as_user") else None,
        run_as_username=context.run_as_username,
        run_as_group=context.run_as_group.value if context.HasField("run_as_group") else None,
        supplemental_groups=tuple(context.supplemental_groups),
        supplemental_groups_strict=context.supplemental_groups_policy == pb.Strict,
        privileged=context.privileged,
        capabilities=Capabilities(
            add=tuple(context.capabilities.add_capabilities),
            drop=tuple(context.capabilities.drop_capabilities),
        ),
        readonly_rootfs=context.readonly_rootfs,
        no_new_privs=context.no_new_privs,
        masked_paths=tuple(context.masked_paths),
        readonly_paths=tuple(context.readonly_paths),
        seccomp=(
            profile_from_cri(context.seccomp)
            if context.HasField("seccomp")
            else legacy_profile_from_cri(context.seccomp_profile_path)
        ),
        apparmor=(
            profile_from_cri(context.apparmor)
            if context.HasField("apparmor")
            else legacy_profile_from_cri(context.apparmor_profile)
        ),
        selinux=selinux_from_cri(context.selinux_options) if context.HasField("selinux_options") else None,
        namespaces=namespaces_from_cri(context.namespace_options),
    )
