"""Conversion of types that sandboxes and units share: namespaces, profiles, id mappings, resources, images.

CRI has no fields for resource requests, the pids limit or the ephemeral storage limit. For resources that come from
CRI, the CPU request and limit are computed from shares, quota and period, since runtimes of other workload types need
them. The field ``image`` of CRI's ImageSpec is what the image store looks up: the store's own reference
(`ImageSpec.ref`) after the pull, or the name in the manifest before.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeletx.api import (
    IdMapping,
    ImageAuth,
    ImageFilesystem,
    ImageSpec,
    ImageStatus,
    NamespaceMode,
    Namespaces,
    ProfileType,
    Resources,
    SecurityProfile,
    SELinuxOptions,
    UnitId,
)
from kubeletx.cri.stubs import runtime_v1_pb2 as pb

_MODE_TO_CRI = {
    NamespaceMode.POD: pb.POD,
    NamespaceMode.CONTAINER: pb.CONTAINER,
    NamespaceMode.NODE: pb.NODE,
    NamespaceMode.TARGET: pb.TARGET,
}
_MODE_FROM_CRI = {value: key for key, value in _MODE_TO_CRI.items()}

_PROFILE_TO_CRI = {
    ProfileType.RUNTIME_DEFAULT: pb.SecurityProfile.RuntimeDefault,
    ProfileType.UNCONFINED: pb.SecurityProfile.Unconfined,
    ProfileType.LOCALHOST: pb.SecurityProfile.Localhost,
}
_PROFILE_FROM_CRI = {value: key for key, value in _PROFILE_TO_CRI.items()}

MILLICORES_PER_CORE = 1000
SHARES_PER_CORE = 1024
DEFAULT_PERIOD_US = 100_000


def namespaces_to_cri(namespaces: Namespaces) -> pb.NamespaceOption:
    """Convert namespaces to CRI. `Namespaces.user` becomes both the user and the group id mappings."""
    option = pb.NamespaceOption(
        network=_MODE_TO_CRI[namespaces.network],
        pid=_MODE_TO_CRI[namespaces.pid],
        ipc=_MODE_TO_CRI[namespaces.ipc],
        target_id=namespaces.target_unit or "",
    )
    if namespaces.user is not None:
        option.userns_options.mode = pb.POD
        option.userns_options.uids.extend(id_mappings_to_cri(namespaces.user))
        option.userns_options.gids.extend(id_mappings_to_cri(namespaces.user))
    return option


def namespaces_from_cri(option: pb.NamespaceOption) -> Namespaces:
    """Convert namespaces from CRI. Only the user id mappings are read, since the group id mappings are the same."""
    own_users = option.HasField("userns_options") and option.userns_options.mode == pb.POD
    return Namespaces(
        network=_MODE_FROM_CRI[option.network],
        pid=_MODE_FROM_CRI[option.pid],
        ipc=_MODE_FROM_CRI[option.ipc],
        target_unit=UnitId(option.target_id) if option.target_id else None,
        user=id_mappings_from_cri(option.userns_options.uids) if own_users else None,
    )


def id_mappings_to_cri(mappings: tuple[IdMapping, ...]) -> list[pb.IDMapping]:
    """Convert id mappings to CRI, in order."""
    return [pb.IDMapping(host_id=m.host_id, container_id=m.container_id, length=m.length) for m in mappings]


def id_mappings_from_cri(mappings: Iterable[pb.IDMapping]) -> tuple[IdMapping, ...]:
    """Convert id mappings from CRI, in order."""
    return tuple(IdMapping(host_id=m.host_id, container_id=m.container_id, length=m.length) for m in mappings)


def profile_to_cri(profile: SecurityProfile | None) -> pb.SecurityProfile | None:
    """Convert a seccomp or AppArmor profile to CRI. None is returned as None: the field is not set."""
    if profile is None:
        return None
    return pb.SecurityProfile(profile_type=_PROFILE_TO_CRI[profile.type], localhost_ref=profile.localhost_ref)


def profile_from_cri(profile: pb.SecurityProfile) -> SecurityProfile:
    """Convert a seccomp or AppArmor profile from CRI. Call it only if the message's field is set."""
    return SecurityProfile(type=_PROFILE_FROM_CRI[profile.profile_type], localhost_ref=profile.localhost_ref)


def legacy_profile_from_cri(text: str) -> SecurityProfile | None:
    """Parse a profile in CRI's older text format: runtime/default, unconfined or localhost/NAME.

    Other text is taken as the NAME of a localhost profile. Returns None for an empty text.
    """
    if not text:
        return None
    if text == "unconfined":
        return SecurityProfile(type=ProfileType.UNCONFINED)
    if text in ("runtime/default", "docker/default"):
        return SecurityProfile(type=ProfileType.RUNTIME_DEFAULT)
    return SecurityProfile(type=ProfileType.LOCALHOST, localhost_ref=text.removeprefix("localhost/"))


def selinux_to_cri(options: SELinuxOptions | None) -> pb.SELinuxOption | None:
    """Convert SELinux options to CRI. None is returned as None: the field is not set."""
    if options is None:
        return None
    return pb.SELinuxOption(user=options.user, role=options.role, type=options.type, level=options.level)


def selinux_from_cri(options: pb.SELinuxOption) -> SELinuxOptions:
    """Convert SELinux options from CRI. Call it only if the message's field is set."""
    return SELinuxOptions(user=options.user, role=options.role, type=options.type, level=options.level)


def int64_to_cri(value: int | None) -> pb.Int64Value | None:
    """Wrap a number such as a user id in CRI's message Int64Value. None is returned as None: the field is not set."""
    return None if value is None else pb.Int64Value(value=value)


def resources_to_cri(resources: Resources) -> pb.LinuxContainerResources:
    """Convert resources to CRI. None becomes 0, which means "not set" in CRI."""
    return pb.LinuxContainerResources(
        cpu_period=resources.cpu_period_us or 0,
        cpu_quota=resources.cpu_quota_us or 0,
        cpu_shares=resources.cpu_shares or 0,
        memory_limit_in_bytes=resources.memory_limit_bytes or 0,
        oom_score_adj=resources.oom_score_adj or 0,
        cpuset_cpus=resources.cpuset_cpus,
        cpuset_mems=resources.cpuset_mems,
        hugepage_limits=[
            pb.HugepageLimit(page_size=size, limit=limit)
            for size, limit in resources.hugepage_limits_bytes.items()
        ],
        unified=resources.unified,
        memory_swap_limit_in_bytes=resources.memory_swap_limit_bytes or 0,
    )


def resources_from_cri(resources: pb.LinuxContainerResources) -> Resources:
    """Convert resources from CRI; 0 becomes None.

    The CPU request is computed from the shares, and the CPU limit from quota and period.
    """
    return Resources(
        cpu_shares=resources.cpu_shares or None,
        cpu_period_us=resources.cpu_period or None,
        cpu_quota_us=resources.cpu_quota or None,
        cpu_request_millicores=_request_millicores(resources.cpu_shares),
        cpu_limit_millicores=_limit_millicores(resources.cpu_quota, resources.cpu_period),
        memory_limit_bytes=resources.memory_limit_in_bytes or None,
        memory_swap_limit_bytes=resources.memory_swap_limit_in_bytes or None,
        oom_score_adj=resources.oom_score_adj or None,
        cpuset_cpus=resources.cpuset_cpus,
        cpuset_mems=resources.cpuset_mems,
        hugepage_limits_bytes={limit.page_size: limit.limit for limit in resources.hugepage_limits},
        unified=dict(resources.unified),
    )


def _request_millicores(shares: int) -> int | None:
    """Compute the CPU request from CPU shares; None for 2 shares or fewer, the kubelet's value for "no request"."""
    if shares <= 2:
        return None
    return -(-shares * MILLICORES_PER_CORE // SHARES_PER_CORE)


def _limit_millicores(quota_us: int, period_us: int) -> int | None:
    if quota_us <= 0:
        return None
    return -(-quota_us * MILLICORES_PER_CORE // (period_us if period_us > 0 else DEFAULT_PERIOD_US))


def image_spec_to_cri(image: ImageSpec) -> pb.ImageSpec:
    """Convert the image of a unit for CreateContainer.

    With a `ref`, that is CRI's ``image``, and `requested` is ``user_specified_image``. With an empty `ref`,
    `requested` is ``image``.
    """
    return pb.ImageSpec(
        image=image.ref or image.requested,
        user_specified_image=image.requested if image.ref else "",
        annotations=image.annotations,
        runtime_handler=image.handler,
    )


def image_spec_from_cri(image: pb.ImageSpec) -> ImageSpec:
    """Convert the image of a CRI request; the reverse of `image_spec_to_cri`."""
    return ImageSpec(
        requested=image.user_specified_image or image.image,
        ref=image.image if image.user_specified_image else "",
        handler=image.runtime_handler,
        annotations=dict(image.annotations),
    )


def image_from_cri(image: pb.Image) -> ImageStatus:
    """Convert one image of the answer to ListImages or ImageStatus."""
    return ImageStatus(
        id=image.id,
        ref=image.id,
        tags=tuple(image.repo_tags),
        digests=tuple(image.repo_digests),
        size_bytes=image.size,
        user=image.uid.value if image.HasField("uid") else None,
        username=image.username,
        pinned=image.pinned,
    )


def auth_to_cri(auth: ImageAuth | None) -> pb.AuthConfig | None:
    """Convert registry credentials to CRI. None is returned as None: the field is not set."""
    if auth is None:
        return None
    return pb.AuthConfig(
        username=auth.username,
        password=auth.password,
        auth=auth.auth,
        server_address=auth.server_address,
        identity_token=auth.identity_token,
        registry_token=auth.registry_token,
    )


def filesystem_from_cri(usage: pb.FilesystemUsage) -> ImageFilesystem:
    """Convert the usage of one file system of an image store, from the answer to ImageFsInfo."""
    return ImageFilesystem(
        mountpoint=usage.fs_id.mountpoint,
        used_bytes=usage.used_bytes.value,
        inodes_used=usage.inodes_used.value,
        at_ns=usage.timestamp,
    )
