"""`admit_beside`: runs the admission checks in the kubelet's order; the first failed check rejects the pod for good.

See docs/kubelet-parity.md, rows A1 and A2. The order is:

    [pressure of the node] → kubeletx annotations and sizes → sysctls → operating system → groups → resource fit
            → placement → host ports → AppArmor → kernel features → [taints, of scheduled pods]
            → [shutdown of the node]

`NodeAdmission` adds the checks in brackets, from `pressure` and `taints`. Those of pressure and shutdown reject pods only
while the pressure or the shutdown lasts.

A pod that runs already is never checked again: after a restart of the agent only its resources are reserved (row A6).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kubeletx.api import names
from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod, Toleration
from kubeletx.kube.types.node import Taint
from kubeletx.kube.validation import validate_own

from ..model.facts import Rejection, Waiting
from .node import AdmissionNode, HostPort, Occupancy, Taken, ports_conflict
from .placement import check_placement, check_system
from .resources import check_resources
from .sysctls import check_sysctls

UNCONFINED = "Unconfined"
TAINT_TOLERATION: Final = "TaintToleration"
_NO_EXECUTE: Final = "NoExecute"


def admit_beside(
    pod: Pod, node: AdmissionNode, occupancy: Occupancy, wanted: Taken | None
) -> Rejection | None:
    """Return the reason the pod cannot run here in addition to the pods in `occupancy`; None if it is admitted.

    `wanted`: resources that the pod would use on this node; None if it uses none, because its runtime is on another
    machine.
    """
    refusal = check_own(pod)
    refusal = refusal or check_sysctls(pod, node) or check_system(pod, node) or check_groups(pod, node)
    if refusal is None and wanted is not None:
        refusal = check_resources(wanted, node, occupancy)
    refusal = refusal or check_placement(pod, node)
    if refusal is None and wanted is not None:
        refusal = check_host_ports(wanted.ports, occupancy.ports)
    return refusal or check_apparmor(pod, node) or check_features(pod, node)


def check_own(pod: Pod) -> Rejection | None:
    """Reject a pod with invalid kubeletx annotations or too large an environment; no API server checks these."""
    problems = validate_own(pod, pod.ref)
    return Rejection(reason=Event.FAILED_VALIDATION, message=str(problems[0])) if problems else None


def check_host_ports(wanted: Sequence[HostPort], used: Sequence[tuple[HostPort, str]]) -> Rejection | None:
    """Reject the pod if another pod uses one of its ports; None if all are free.

    `used`: ports in use, each with the namespace/name of its pod.
    """
    for port in wanted:
        for other, owner in used:
            if ports_conflict(port, other):
                return Rejection(
                    reason="NodePorts",
                    message="Predicate NodePorts failed: node(s) didn't have free ports for the requested "
                    f"pod ports: {port.protocol} {port.port} is used by pod {owner}",
                )
    return None


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


def held_back(pod: Pod) -> Waiting | None:
    """Return the waiting reason of a pod that uses resource claims (DRA); None if it uses none.

    Without its device a pod misbehaves. It is not rejected but waits, unassigned, as on a kubelet without the DRA driver:
    a later version of the agent can start it.
    """
    field = next(_claims(pod), "")
    if not field:
        return None
    return Waiting(
        reason=Event.FAILED_PREPARE_RESOURCES,
        message=f"Failed to prepare dynamic resources: {field}: this agent does not carry out resource claims; "
        "let the scheduler place the pod on a node that does, or remove the claim",
    )


def _claims(pod: Pod) -> Iterator[str]:
    """Yield the path of every field that refers to a resource claim, including claims that the scheduler made."""
    spec, status = pod.spec, pod.status
    yield from (f"spec.resourceClaims[{index}]" for index in range(len(spec.resource_claims)))
    if spec.resources.claims:
        yield "spec.resources.claims"
    for kind, containers in (("initContainers", spec.init_containers), ("containers", spec.containers)):
        for index, container in enumerate(containers):
            if container.resources.claims:
                yield f"spec.{kind}[{index}].resources.claims"
    if spec.virtual_machine is not None and spec.virtual_machine.resources.claims:
        yield "spec.virtualMachine.resources.claims"
    if status.extended_resource_claim_status is not None:
        yield "status.extendedResourceClaimStatus"
    if status.node_allocatable_resource_claim_statuses:
        yield "status.nodeAllocatableResourceClaimStatuses"


def check_taints(tolerations: Iterable[Toleration], taints: Iterable[Taint]) -> Rejection | None:
    """Reject a pod that does not tolerate a NoExecute taint of the node; None if it tolerates all.

    NoSchedule is the scheduler's business, and static pods are not checked, since no scheduler places them. Source:
    kubelet, lifecycle/predicate.go.
    """
    own = tuple(tolerations)
    for taint in taints:
        if taint.effect != _NO_EXECUTE or any(tolerates(toleration, taint) for toleration in own):
            continue
        shown = f"{taint.key}={taint.value}" if taint.value else taint.key
        return Rejection(
            reason=TAINT_TOLERATION,
            message="Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate: "
            f"{shown}:{_NO_EXECUTE}",
        )
    return None


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return True if the toleration matches the taint. Source: core/v1 Toleration.

    An empty effect matches every effect; an empty key with operator Exists matches every key.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    wanted, actual = toleration.value or "", taint.value or ""
    match toleration.operator or "Equal":
        case "Exists":
            return True
        case "Equal":
            return bool(toleration.key) and wanted == actual
        case "Lt" | "Gt" as operator if _is_number(wanted) and _is_number(actual):
            return int(actual) < int(wanted) if operator == "Lt" else int(actual) > int(wanted)
    return False


def _is_number(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdecimal() and len(digits) < 20
