"""Security settings of pods and containers. Source: core/v1 PodSecurityContext, SecurityContext."""

from __future__ import annotations

from .meta import ApiStruct


class Capabilities(ApiStruct, frozen=True, kw_only=True):
    """Linux capabilities, as written: with or without the prefix CAP_, or ALL.

    `add`: those to add. `drop`: those to take away.
    """

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class SELinuxOptions(ApiStruct, frozen=True, kw_only=True):
    """Parts of an SELinux label."""

    user: str | None = None
    role: str | None = None
    type: str | None = None
    level: str | None = None


class WindowsSecurityContextOptions(ApiStruct, frozen=True, kw_only=True):
    """Windows settings: decoded, but without effect, since nodes run Linux."""

    gmsa_credential_spec_name: str | None = None
    gmsa_credential_spec: str | None = None
    run_as_user_name: str | None = None
    host_process: bool | None = None


class SeccompProfile(ApiStruct, frozen=True, kw_only=True):
    """seccomp profile of a pod or container.

    `type`: RuntimeDefault, Unconfined or Localhost. `localhost_profile`: path of the profile, for Localhost
    only.
    """

    type: str = ""
    localhost_profile: str | None = None


class AppArmorProfile(ApiStruct, frozen=True, kw_only=True):
    """AppArmor profile of a pod or container.

    `type`: RuntimeDefault, Unconfined or Localhost. `localhost_profile`: name of the profile, for Localhost
    only.
    """

    type: str = ""
    localhost_profile: str | None = None


class Sysctl(ApiStruct, frozen=True, kw_only=True):
    """One kernel setting of the pod. `name`: name of the setting, such as net.core.somaxconn. `value`: its value."""

    name: str = ""
    value: str = ""


class SecurityContext(ApiStruct, frozen=True, kw_only=True):
    """Security settings of one container. A field that is set here overrides the one of `PodSecurityContext`.

    `privileged`: the container may do all that root of the node may. `run_as_user`: user ID of its processes; None:
    that of the image. `run_as_group`: group ID of its processes; None: that of the image. `run_as_non_root`: refuse
    to start it as user 0. `read_only_root_filesystem`: mount its root file system read-only.
    `allow_privilege_escalation`: False: a process cannot gain privileges of its parent's binary, such as by setuid.
    `proc_mount`: Default, or Unmasked for all of /proc.
    """

    capabilities: Capabilities | None = None
    privileged: bool | None = None
    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    read_only_root_filesystem: bool | None = None
    allow_privilege_escalation: bool | None = None
    proc_mount: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None


class PodSecurityContext(ApiStruct, frozen=True, kw_only=True):
    """Security settings of the pod, which its containers inherit.

    `run_as_user`: user ID of all processes; None: that of each image. `run_as_group`: group ID of all processes;
    None: that of each image. `run_as_non_root`: refuse to start containers as user 0. `supplemental_groups`: further
    group IDs of all processes. `supplemental_groups_policy`: Merge, to add the groups of the image, or Strict.
    `fs_group`: group ID that owns the files of volumes, and that all processes have. `sysctls`: kernel settings of
    the pod. `fs_group_change_policy`: Always, or OnRootMismatch to skip volumes that have the group already.
    `se_linux_change_policy`: MountOption or Recursive: how volumes get the SELinux label.
    """

    se_linux_options: SELinuxOptions | None = None
    windows_options: WindowsSecurityContextOptions | None = None
    run_as_user: int | None = None
    run_as_group: int | None = None
    run_as_non_root: bool | None = None
    supplemental_groups: tuple[int, ...] = ()
    supplemental_groups_policy: str | None = None
    fs_group: int | None = None
    sysctls: tuple[Sysctl, ...] = ()
    fs_group_change_policy: str | None = None
    seccomp_profile: SeccompProfile | None = None
    app_armor_profile: AppArmorProfile | None = None
    se_linux_change_policy: str | None = None
