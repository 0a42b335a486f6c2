"""`held_back`: makes a pod wait if it uses resource claims (DRA), which this agent does not support. Pure.

A pod that requests a device and runs without it misbehaves, and the scheduler counts the device as used. The pod is
therefore not started. It is not rejected either: it waits, as on a kubelet without the DRA driver, and a later version
of the agent can start it.
"""

from __future__ import annotations

from collections.abc import Iterator

from kubeletx.api.names import Event
from kubeletx.kube.types.core import Pod

from ..model.facts import Waiting


def held_back(pod: Pod) -> Waiting | None:
    """Return the waiting reason of a pod that uses resource claims (DRA); None if it uses none.

    The pod must not be assigned to a runtime while it waits.
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
