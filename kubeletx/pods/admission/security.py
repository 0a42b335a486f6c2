"""Security features that the node itself must have: AppArmor, seccomp, user namespaces, strict groups.

A pod that asks for protection which the node cannot give is rejected; running it without would be worse.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.api import names
from kubeletx.kube.types.core import Pod

from ..model.facts import Rejection
from .node import AdmissionNode

UNCONFINED = "Unconfined"


def check_groups(pod: Pod, node: AdmissionNode) -> Rejection | None:
    """Reject supplementalGroupsPolicy Strict if the pod's runtime does not support it."""
    context = pod.spec.security_context
    if context is None or context.supplemental_groups_policy != "Strict" or node.has_strict_groups:
        return None
    return Rejection(
        reason=names.STRICT_GROUPS_UNSUPPORTED,
        message="SupplementalGroupsPolicy=Strict is not supported in this node",
    )


def check_apparmor(pod: Pod, node: AdmissionNode) -> Rejection | None:
    """Reject a pod with an AppArmor profile if the kernel has no AppArmor."""
    if node.has_apparmor or not any(_profiles(pod, "app_armor_profile")):
        return None
    return Rejection(reason="AppArmor", message="Cannot enforce AppArmor: it is not enabled on the host")


def check_features(pod: Pod, node: AdmissionNode) -> Rejection | None:
    """Reject seccomp profiles and user namespaces that the kernel does not support."""
    if not node.has_seccomp and any(_profiles(pod, "seccomp_profile")):
        return _unsupported("seccomp profiles")
    if not node.has_user_namespaces and pod.spec.host_users is False:
        return _unsupported("user namespaces (hostUsers: false)")
    return None


def _unsupported(what: str) -> Rejection:
    return Rejection(reason="PodFeatureUnsupported", message=f"the node's kernel has no {what}")


def _profiles(pod: Pod, field: str) -> Iterator[bool]:
    """Yield for each security context of the pod whether its `field` is set to a profile other than Unconfined."""
    spec = pod.spec
    contexts = [spec.security_context]
    for container in (*spec.init_containers, *spec.containers, *spec.ephemeral_containers):
        contexts.append(container.security_context)  # type: ignore[arg-type]  # both kinds have the field
    for context in contexts:
        profile = getattr(context, field, None)
        yield profile is not None and profile.type not in ("", UNCONFINED)
