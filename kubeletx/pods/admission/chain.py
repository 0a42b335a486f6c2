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

from collections.abc import Sequence

from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod
from kubeletx.kube.validation import validate_own

from ..model.facts import Rejection
from .node import AdmissionNode, HostPort, Occupancy, Taken, ports_conflict
from .placement import check_placement, check_system
from .resources import check_resources
from .security import check_apparmor, check_features, check_groups
from .sysctls import check_sysctls


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
