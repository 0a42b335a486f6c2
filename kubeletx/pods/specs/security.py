"""Builds the security settings of sandboxes and containers (docs/kubelet-parity.md, rows E6 and E7). Pure.

A container's settings take precedence over its pod's settings. If neither sets a user, the image's user applies; an
image without a user runs as root.
"""

from __future__ import annotations

from typing import Final

from kubeletx import api
from kubeletx.api import ImageStatus, NamespaceMode, Namespaces, ProfileType, SecurityProfile, UnitId
from kubeletx.kube.types.core import (
    AppArmorProfile,
    Container,
    Pod,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    SELinuxOptions,
)

from ..model.node_context import NodeContext
from ..model.spec_errors import ContainerConfigError, describe, path_of

APPARMOR_ANNOTATION: Final = "container.apparmor.security.beta.kubernetes.io/"

MASKED_PATHS: Final = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
READONLY_PATHS: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

_PROFILES: Final = {
    "RuntimeDefault": ProfileType.RUNTIME_DEFAULT,
    "Unconfined": ProfileType.UNCONFINED,
    "Localhost": ProfileType.LOCALHOST,
}
_RUNTIME_DEFAULT: Final = SecurityProfile(type=ProfileType.RUNTIME_DEFAULT)
_UNCONFINED: Final = SecurityProfile(type=ProfileType.UNCONFINED)


def sandbox_security(pod: Pod) -> api.SandboxSecurity:
    """Build the security settings of the pod's sandbox. Its seccomp profile is always the runtime's default."""
    of_pod = pod.spec.security_context or PodSecurityContext()
    return api.SandboxSecurity(
        run_as_user=of_pod.run_as_user,
        run_as_group=of_pod.run_as_group if of_pod.run_as_user is not None else None,
        supplemental_groups=_groups(of_pod),
        supplemental_groups_strict=of_pod.supplemental_groups_policy == "Strict",
        privileged=any(
            is_privileged(container) for container in (*pod.spec.init_containers, *pod.spec.containers)
        ),
        seccomp=_RUNTIME_DEFAULT,
        selinux=_selinux(of_pod.se_linux_options),
    )


def process_security(
    pod: Pod,
    container: Container,
    context: NodeContext,
    *,
    image: ImageStatus | None,
    target_unit: UnitId | None = None,
    user_mappings: tuple[api.IdMapping, ...] | None = None,
) -> api.ProcessSecurity:
    """Build the security settings of one container.

    `image`: status of its image, which may set a user; None if the runtime manages no images. `target_unit`: the unit
    whose processes an ephemeral container shares. `user_mappings`: ID mapping of the pod's user namespace; None: the
    node's user namespace. Raises InvalidPod (CreateContainerConfigError), for example if the image would violate
    runAsNonRoot.
    """
    path = path_of(pod, container)
    of_pod = pod.spec.security_context or PodSecurityContext()
    own = container.security_context or SecurityContext()
    run_as_user = own.run_as_user if own.run_as_user is not None else of_pod.run_as_user
    run_as_group = own.run_as_group if own.run_as_group is not None else of_pod.run_as_group
    image_user, image_username = _image_user(image)
    _check_non_root(pod, container, path, run_as_user, image_user, image_username)
    if run_as_user is None:
        run_as_user, username = image_user, image_username
    else:
        username = ""
    capabilities = own.capabilities
    unmasked = own.proc_mount == "Unmasked"
    return api.ProcessSecurity(
        run_as_user=run_as_user,
        run_as_username=username,
        run_as_group=run_as_group,
        supplemental_groups=_groups(of_pod),
        supplemental_groups_strict=of_pod.supplemental_groups_policy == "Strict",
        privileged=is_privileged(container),
        capabilities=api.Capabilities(add=capabilities.add, drop=capabilities.drop)
        if capabilities is not None
        else api.Capabilities(),
        readonly_rootfs=bool(own.read_only_root_filesystem),
        no_new_privs=own.allow_privilege_escalation is False,
        masked_paths=() if unmasked else MASKED_PATHS,
        readonly_paths=() if unmasked else READONLY_PATHS,
        seccomp=_seccomp(own.seccomp_profile or of_pod.seccomp_profile, context, path),
        apparmor=_apparmor(pod, container, own.app_armor_profile or of_pod.app_armor_profile, path),
        selinux=_selinux(own.se_linux_options or of_pod.se_linux_options),
        namespaces=pod_namespaces(pod, target_unit=target_unit, user_mappings=user_mappings),
    )


def pod_namespaces(
    pod: Pod,
    *,
    target_unit: UnitId | None = None,
    user_mappings: tuple[api.IdMapping, ...] | None = None,
) -> Namespaces:
    """Choose the pod's network, PID, IPC and user namespaces.

    `target_unit`: the unit whose processes an ephemeral container shares. `user_mappings`: ID mapping of the pod's user
    namespace; None: the node's user namespace.
    """
    spec = pod.spec
    if spec.host_pid:
        pid = NamespaceMode.NODE
    elif spec.share_process_namespace:
        pid = NamespaceMode.POD
    else:
        pid = NamespaceMode.CONTAINER
    if target_unit is not None:
        pid = NamespaceMode.TARGET
    return Namespaces(
        network=NamespaceMode.NODE if spec.host_network else NamespaceMode.POD,
        pid=pid,
        ipc=NamespaceMode.NODE if spec.host_ipc else NamespaceMode.POD,
        target_unit=target_unit,
        user=user_mappings,
    )


def is_privileged(container: Container) -> bool:
    """Return True if the container is privileged."""
    return container.security_context is not None and bool(container.security_context.privileged)


def _image_user(image: ImageStatus | None) -> tuple[int | None, str]:
    if image is None:
        return None, ""
    if image.user is not None:
        return image.user, ""
    return (None, image.username) if image.username else (0, "")


def _check_non_root(
    pod: Pod,
    container: Container,
    path: str,
    run_as_user: int | None,
    image_user: int | None,
    image_username: str,
) -> None:
    own, of_pod = container.security_context, pod.spec.security_context
    wanted = own.run_as_non_root if own is not None else None
    if wanted is None:
        wanted = of_pod.run_as_non_root if of_pod is not None else None
    if not wanted:
        return
    who = f'(pod: "{describe(pod)}", container: {container.name})'
    if run_as_user == 0:
        problem = f"container's runAsUser breaks non-root policy {who}"
    elif run_as_user is not None:
        return
    elif image_user == 0:
        problem = f"container has runAsNonRoot and image will run as root {who}"
    elif image_user is None and image_username:
        problem = (
            f"container has runAsNonRoot and image has non-numeric user ({image_username}), "
            f"cannot verify user is non-root {who}"
        )
    else:
        return
    raise ContainerConfigError(
        field=f"{path}.securityContext.runAsNonRoot", problem=problem, fix="set runAsUser to a number above 0"
    )


def _groups(of_pod: PodSecurityContext) -> tuple[int, ...]:
    first = () if of_pod.fs_group is None else (of_pod.fs_group,)
    return (*first, *of_pod.supplemental_groups)


def _seccomp(profile: SeccompProfile | None, context: NodeContext, path: str) -> SecurityProfile:
    if profile is None:
        return _RUNTIME_DEFAULT if context.seccomp_default else _UNCONFINED
    field = f"{path}.securityContext.seccompProfile"
    kind = _profile_type(profile.type, field)
    if kind is not ProfileType.LOCALHOST:
        return SecurityProfile(type=kind)
    name = profile.localhost_profile
    if not name:
        raise ContainerConfigError(
            field=f"{field}.localhostProfile",
            problem="localhostProfile must be set if seccompProfile type is Localhost.",
        )
    if name.startswith("/") or ".." in name.split("/"):
        raise ContainerConfigError(
            field=f"{field}.localhostProfile",
            problem=f"{name!r} leaves the directory of profiles",
            fix=f"name a file below {context.seccomp_directory}",
        )
    return SecurityProfile(type=kind, localhost_ref=str(context.seccomp_directory / name))


def _apparmor(
    pod: Pod, container: Container, profile: AppArmorProfile | None, path: str
) -> SecurityProfile | None:
    field = f"{path}.securityContext.appArmorProfile"
    if profile is None:
        return _apparmor_annotation(pod, container)
    kind = _profile_type(profile.type, field)
    if kind is not ProfileType.LOCALHOST:
        return SecurityProfile(type=kind)
    if not profile.localhost_profile:
        raise ContainerConfigError(
            field=f"{field}.localhostProfile",
            problem="localhostProfile must be set if appArmorProfile type is Localhost.",
        )
    return SecurityProfile(type=kind, localhost_ref=profile.localhost_profile)


def _apparmor_annotation(pod: Pod, container: Container) -> SecurityProfile | None:
    value = pod.metadata.annotations.get(APPARMOR_ANNOTATION + container.name, "")
    if value == "runtime/default":
        return _RUNTIME_DEFAULT
    if value == "unconfined":
        return _UNCONFINED
    if value.startswith("localhost/"):
        return SecurityProfile(type=ProfileType.LOCALHOST, localhost_ref=value.removeprefix("localhost/"))
    return None


def _profile_type(name: str, field: str) -> ProfileType:
    if name not in _PROFILES:
        raise ContainerConfigError(
            field=f"{field}.type", problem=f"unknown profile type {name!r}", fix="use " + ", ".join(_PROFILES)
        )
    return _PROFILES[name]


def _selinux(options: SELinuxOptions | None) -> api.SELinuxOptions | None:
    if options is None:
        return None
    return api.SELinuxOptions(
        user=options.user or "", role=options.role or "", type=options.type or "", level=options.level or ""
    )
