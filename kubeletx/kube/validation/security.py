"""Rules for security settings. Source: kubernetes, pkg/apis/core/validation."""

from __future__ import annotations

from typing import Final

from ..types.core import PodSpec
from ..types.security import (
    AppArmorProfile,
    PodSecurityContext,
    SeccompProfile,
    SecurityContext,
    Sysctl,
    WindowsSecurityContextOptions,
)
from . import words
from .problems import Problems, show

_PROFILES: Final = ("RuntimeDefault", "Unconfined", "Localhost")
_HOST_NETWORK_SYSCTLS: Final = ("net.",)
_HOST_IPC_SYSCTLS: Final = ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")


def check_pod_security(field: str, spec: PodSpec, problems: Problems) -> None:
    """Check the pod's security context, and that it fits the namespaces that the pod shares with the node.

    These are set by hostNetwork, hostPID, hostIPC and hostUsers. `field`: path of the security context.
    """
    if spec.share_process_namespace and spec.host_pid:
        problems.add("spec.shareProcessNamespace", "true together with hostPID", "keep one of them")
    if spec.host_users is False:
        for word, shared in (
            ("hostNetwork", spec.host_network),
            ("hostPID", spec.host_pid),
            ("hostIPC", spec.host_ipc),
        ):
            if shared:
                problems.add("spec.hostUsers", f"false together with {word}", "keep one of them")
    context = spec.security_context
    if context is None:
        return
    _check_ids(field, context, problems)
    problems.between(f"{field}.fsGroup", context.fs_group, 0)
    for index, group in enumerate(context.supplemental_groups):
        problems.between(f"{field}.supplementalGroups[{index}]", group, 0)
    problems.one_of(
        f"{field}.supplementalGroupsPolicy", context.supplemental_groups_policy, ("Merge", "Strict")
    )
    problems.one_of(
        f"{field}.fsGroupChangePolicy", context.fs_group_change_policy, ("OnRootMismatch", "Always")
    )
    problems.one_of(f"{field}.seLinuxChangePolicy", context.se_linux_change_policy, ("Recursive",))
    _check_windows(f"{field}.windowsOptions", context.windows_options, spec, problems)
    _check_profiles(field, context.seccomp_profile, context.app_armor_profile, problems)
    _check_sysctls(f"{field}.sysctls", context.sysctls, spec, problems)


def check_container_security(field: str, context: SecurityContext, spec: PodSpec, problems: Problems) -> None:
    """Check a container's security context. `field`: path of the security context; `spec`: the pod's spec."""
    _check_ids(field, context, problems)
    _check_windows(f"{field}.windowsOptions", context.windows_options, spec, problems)
    problems.one_of(f"{field}.procMount", context.proc_mount, ("Default", "Unmasked"))
    if context.proc_mount == "Unmasked" and spec.host_users is not False:
        problems.add(
            f"{field}.procMount", "'Unmasked' in the node's user namespace", "set spec.hostUsers to false"
        )
    _check_profiles(field, context.seccomp_profile, context.app_armor_profile, problems)
    if context.allow_privilege_escalation is False:
        added = context.capabilities.add if context.capabilities else ()
        if context.privileged:
            problems.add(
                f"{field}.allowPrivilegeEscalation", "false together with privileged", "keep one of them"
            )
        elif "CAP_SYS_ADMIN" in added:
            problems.add(
                f"{field}.allowPrivilegeEscalation", "false together with CAP_SYS_ADMIN", "keep one of them"
            )


def _check_ids(field: str, context: PodSecurityContext | SecurityContext, problems: Problems) -> None:
    problems.between(f"{field}.runAsUser", context.run_as_user, 0)
    problems.between(f"{field}.runAsGroup", context.run_as_group, 0)


def _check_windows(
    field: str, options: WindowsSecurityContextOptions | None, spec: PodSpec, problems: Problems
) -> None:
    if options is None:
        return
    if spec.os is not None and spec.os.name == "linux":
        problems.add(field, "is set with spec.os.name linux", "remove it")
    if options.gmsa_credential_spec_name is not None:
        problems.name(
            f"{field}.gmsaCredentialSpecName", options.gmsa_credential_spec_name, words.dns_subdomain
        )
    if options.gmsa_credential_spec is not None:
        problems.required(f"{field}.gmsaCredentialSpec", options.gmsa_credential_spec)
    if options.run_as_user_name is not None:
        problems.name(f"{field}.runAsUserName", options.run_as_user_name, words.windows_user)
    if options.host_process and not spec.host_network:
        problems.add(f"{field}.hostProcess", "true without hostNetwork", "set spec.hostNetwork")


def _check_profiles(
    field: str, seccomp: SeccompProfile | None, apparmor: AppArmorProfile | None, problems: Problems
) -> None:
    for word, profile in (("seccompProfile", seccomp), ("appArmorProfile", apparmor)):
        if profile is None:
            continue
        if not problems.required(f"{field}.{word}.type", profile.type):
            continue
        problems.one_of(f"{field}.{word}.type", profile.type, _PROFILES)
        localhost = f"{field}.{word}.localhostProfile"
        if profile.type == "Localhost":
            check = words.relative_path if word == "seccompProfile" else words.unpadded
            problems.name(localhost, profile.localhost_profile, check)
        elif profile.localhost_profile is not None:
            problems.add(
                localhost, f"{show(profile.localhost_profile)} with type {profile.type}", "remove it"
            )


def _check_sysctls(field: str, sysctls: tuple[Sysctl, ...], spec: PodSpec, problems: Problems) -> None:
    seen: set[str] = set()
    for index, sysctl in enumerate(sysctls):
        where = f"{field}[{index}].name"
        problems.name(where, sysctl.name, words.sysctl_name)
        name = sysctl.name.replace("/", ".")
        problems.unique(where, name, seen, "sysctl")
        if spec.host_network and name.startswith(_HOST_NETWORK_SYSCTLS):
            problems.add(where, f"{show(sysctl.name)} belongs to the node with hostNetwork", "remove it")
        if spec.host_ipc and name.startswith(_HOST_IPC_SYSCTLS):
            problems.add(where, f"{show(sysctl.name)} belongs to the node with hostIPC", "remove it")
