"""Proofs that the holder of a volume no longer writes to it, as far as they follow from facts about its node.

A proof is a clause for users, such as "node n1 has restarted since". An empty text proves nothing. Facts come from the API
server, or from the node's own record, and are of one moment. A node enters itself in a record only while no such proof
exists against it (`record_book`), so that a proof that appears later shows a change of the node.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from ..values import Holder, HolderKey
from .record import AttachmentEntry, BriefEntry

OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
"""Taint with which an administrator, or a controller, declares that a node is shut down. Source: KEP-2268."""


class StorageNode(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about a node at one moment.

    `exists`: the Node object exists. `uid`: of that object; empty without a cluster. `boot_id`: empty: the node has not
    reported one. `ready`: condition Ready is True; without a cluster, the node's agent has reported lately.
    """

    name: str
    exists: bool = True
    uid: str = ""
    boot_id: str = ""
    out_of_service: bool = False
    ready: bool = False


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    """Result of the search for a proof against one entry. `why`: clause that says why the holder is gone, or is not."""

    is_gone: bool
    why: str


Proofs = Mapping[HolderKey, Proof]


def proof_from_facts(entry: AttachmentEntry | BriefEntry, facts: StorageNode) -> str:
    """Return the proof against `entry` that follows from facts about its node; empty if none does.

    A Node object that was made again proves nothing while it shows the boot ID of the entry: the kernel that attached
    the volume still runs.
    """
    name = facts.name
    if not facts.exists:
        return f"node {name} does not exist any more"
    if facts.out_of_service:
        return f"node {name} has the taint {OUT_OF_SERVICE}"
    if facts.boot_id == entry.boot_id:
        return ""
    if facts.boot_id:
        return f"node {name} has restarted since (its boot ID is {facts.boot_id})"
    if entry.node_uid and facts.uid and facts.uid != entry.node_uid:
        return f"node {name} was made again (its UID is {facts.uid})"
    return ""


def is_same_pod(entry: Holder, wanted: Holder) -> bool:
    """Return True if both name the same pod, which may have been made again in between."""
    return (entry.pod_namespace, entry.pod) == (wanted.pod_namespace, wanted.pod)
