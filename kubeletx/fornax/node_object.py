"""The Node and its lists, as a core reads them. Pure.

A core schedules pods to a node only if its phase is Running and its condition Ready is True, and reads the first address
without a check.
"""

from __future__ import annotations

from collections.abc import Sequence

from .changes import Kind
from .stubs import fornaxcore_pb2 as pb
from .stubs import k8s_core_v1_pb2 as core

RUNNING, PENDING = "Running", "Pending"


def finish_node(node: core.Node, identity: pb.NodeIdentifier, *, is_ready: bool) -> core.Node:
    """Return the Node with the name and phase that cores expect; changes `node`.

    `is_ready`: the node is configured, and its condition Ready is True.
    """
    node.metadata.namespace, _, node.metadata.name = identity.identifier.partition("/")
    node.status.phase = RUNNING if is_ready else PENDING
    if not is_ready:
        _not_ready(node)
    if not node.status.addresses:
        node.status.addresses.add(type="InternalIP", address=identity.ip)
    return node


def _not_ready(node: core.Node) -> None:
    for condition in node.status.conditions:
        if condition.type == "Ready":
            if condition.status == "True":
                condition.status, condition.reason = "False", "NotConfigured"
                condition.message = "no FornaxCore has configured the node yet"
            return
    node.status.conditions.add(type="Ready", status="False", reason="NotConfigured")


def fingerprint(node: core.Node) -> bytes:
    """Return what makes two Nodes different for a core: equal for Nodes that differ in times and images only."""
    status = node.status
    kept = core.Node(metadata=node.metadata, spec=node.spec)
    kept.metadata.ClearField("resourceVersion")
    kept.metadata.ClearField("annotations")
    kept.status.phase = status.phase
    kept.status.addresses.extend(status.addresses)
    for name, quantity in status.allocatable.items():
        kept.status.allocatable[name].CopyFrom(quantity)
    for condition in status.conditions:
        kept.status.conditions.add(type=condition.type, status=condition.status, reason=condition.reason)
    return kept.SerializeToString(deterministic=True)


def full_state(
    kind: Kind, identity: pb.NodeIdentifier, node: core.Node, revision: int, pods: Sequence[pb.PodState]
) -> pb.FornaxCoreMessage:
    """Return a NODE_STATE or NODE_READY with all pods and sessions."""
    sessions = [session for pod in pods for session in pod.sessionStates]
    if kind is Kind.READY:
        ready = pb.NodeReady(nodeRevision=revision, node=node, podStates=pods, sessionStates=sessions)
        return pb.FornaxCoreMessage(nodeIdentifier=identity, messageType=pb.NODE_READY, nodeReady=ready)
    state = pb.NodeState(
        nodeRevision=revision,
        node=node,
        podStates=pods,
        runningPods=_names(pods, pb.PodState.Running),
        standbyPods=_names(pods, pb.PodState.Standby),
        sessionStates=sessions,
    )
    return pb.FornaxCoreMessage(nodeIdentifier=identity, messageType=pb.NODE_STATE, nodeState=state)


def _names(pods: Sequence[pb.PodState], state: pb.PodState.State) -> list[str]:
    return [f"{p.pod.metadata.namespace}/{p.pod.metadata.name}" for p in pods if p.state == state]
