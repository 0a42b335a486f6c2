"""Builds the labels and annotations of sandboxes and units, by which the agent finds its pods after a restart.

The sandbox also gets the pod's own labels and annotations. The agent's replace those with the same key, so that a
manifest cannot claim the identity of another agent. See docs/kubelet-parity.md, row X5.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import RuntimeName, names
from kubeletx.kube.manifests.hashes import container_hash
from kubeletx.kube.types.core import Container, Pod, PodUnit

from ..model.node_context import NodeContext
from ..model.sizes import resized, resources_text

DEFAULT_GRACE_SECONDS = 30
DEFAULT_TERMINATION_PATH = "/dev/termination-log"
DEFAULT_TERMINATION_POLICY = "File"


def sandbox_labels(pod: Pod, context: NodeContext, runtime_name: RuntimeName) -> dict[str, str]:
    """Return the pod's labels and the agent's (pod, agent, runtime). For the same key, the agent's label is used."""
    return {**pod.metadata.labels, **_identity(pod, context, runtime_name)}


def sandbox_annotations(
    pod: Pod, *, source: str, spec_hash: str, runtime_kind: str, workload_type: str
) -> dict[str, str]:
    """Return the pod's annotations and the agent's. For the same key, the agent's annotation is used.

    From the agent's annotations a later agent process can end the pod properly, even without its database.
    """
    whole = resized(pod.spec.resources)
    made_with = {}
    if whole.limits or whole.requests or names.MADE_WITH_POD_RESOURCES in pod.metadata.annotations:
        made_with[names.MADE_WITH_POD_RESOURCES] = resources_text(whole)
    return {
        **pod.metadata.annotations,
        **made_with,
        names.POD_SOURCE: source,
        names.POD_SPEC_HASH: spec_hash,
        names.POD_GRACE_SECONDS: str(grace_seconds(pod)),
        names.RUNTIME_KIND: runtime_kind,
        names.WORKLOAD_TYPE: workload_type,
    }


def unit_labels(
    pod: Pod, container: PodUnit, context: NodeContext, runtime_name: RuntimeName
) -> dict[str, str]:
    """Return the labels of one unit: identity of pod, agent and runtime, and the container's name."""
    return {**_identity(pod, context, runtime_name), names.CONTAINER_NAME: container.name}


def unit_annotations(pod: Pod, container: PodUnit, attempt: int) -> dict[str, str]:
    """Return the annotations of one unit, with the kubelet's keys.

    They hold the container's hash, restart count (`attempt`), termination message settings, preStop hook and ports,
    and the pod's grace period. A machine has only hash, restart count and grace period.
    """
    annotations = {
        names.CONTAINER_HASH: container_hash(container),
        names.CONTAINER_RESTART_COUNT: str(attempt),
        names.POD_GRACE_PERIOD: str(grace_seconds(pod)),
    }
    if not isinstance(container, Container):
        return annotations
    annotations[names.CONTAINER_TERMINATION_PATH] = (
        container.termination_message_path or DEFAULT_TERMINATION_PATH
    )
    annotations[names.CONTAINER_TERMINATION_POLICY] = (
        container.termination_message_policy or DEFAULT_TERMINATION_POLICY
    )
    if container.lifecycle is not None and container.lifecycle.pre_stop is not None:
        annotations[names.CONTAINER_PRESTOP] = msgspec.json.encode(container.lifecycle.pre_stop).decode()
    if container.ports:
        annotations[names.CONTAINER_PORTS] = msgspec.json.encode(container.ports).decode()
    return annotations


def grace_seconds(pod: Pod) -> int:
    """Return the pod's terminationGracePeriodSeconds; 30 if it is not set."""
    given = pod.spec.termination_grace_period_seconds
    return DEFAULT_GRACE_SECONDS if given is None else given


def _identity(pod: Pod, context: NodeContext, runtime_name: RuntimeName) -> dict[str, str]:
    return {
        names.POD_NAME: pod.name,
        names.POD_NAMESPACE: pod.namespace,
        names.POD_UID: pod.uid,
        names.AGENT_ID: context.agent_id,
        names.RUNTIME_NAME: runtime_name,
    }
