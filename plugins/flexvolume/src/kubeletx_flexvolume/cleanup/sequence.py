"""Sequence of steps that removes one volume of a deleted storage cluster from this node. Pure functions.

    delete the claim ─► unmap, with force ─► delete the PersistentVolume ─► unmount ─► remove the record ─► done

- If the claim or the PersistentVolume cannot be deleted, that is tried three times; then the sequence goes on.
- If the volume cannot be unmapped, the sequence goes on, too: the PersistentVolume is deleted so that no pod uses it.
  The step that unmounts then unmaps it as well.
- The volume must be unmounted, and this node's entries must be out of the record, before the sequence ends.

The state is journaled after each step. It has everything that the further steps need, since the objects of the cluster
may be gone by then. A step may be repeated.
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from kubeletx.kube.types.meta import ObjectReference

from ..values import StorageVolume

DELETE_TRIES: Final = 3


class CleanupStep(enum.Enum):
    """Next step of a volume."""

    DELETE_CLAIM = "DeleteClaim"
    UNMAP = "Unmap"
    DELETE_VOLUME = "DeleteVolume"
    UNMOUNT = "Unmount"
    REMOVE_RECORD = "RemoveRecord"
    DONE = "Done"


class StepResult(enum.Enum):
    """Result of a step. UNKNOWN: its deadline expired."""

    DONE = "done"
    FAILED = "failed"
    UNKNOWN = "unknown"


class VolumeCleanup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """State of the clean-up of one volume on this node.

    `cluster`: the deleted storage cluster, for events. `claim_*`, `volume_uid`: claim and PersistentVolume of the
    volume; empty: there is none, or it is not the agent's. `tries`: failed attempts of the present step.
    """

    volume: StorageVolume
    cluster: ObjectReference
    claim_namespace: str = ""
    claim_name: str = ""
    claim_uid: str = ""
    volume_uid: str = ""
    is_looked_up: bool = False
    """True once claim and PersistentVolume were looked up."""
    is_unmapped: bool = False
    """True once the volume was unmapped by its own step; otherwise it is with the step that unmounts."""
    step: CleanupStep = CleanupStep.DELETE_CLAIM
    tries: int = 0

    @property
    def cluster_key(self) -> str:
        """NAMESPACE/NAME of the cluster, as `StorageVolume.cluster` has it."""
        return f"{self.cluster.namespace}/{self.cluster.name}"


_NEXT: Final = {
    CleanupStep.DELETE_CLAIM: CleanupStep.UNMAP,
    CleanupStep.UNMAP: CleanupStep.DELETE_VOLUME,
    CleanupStep.DELETE_VOLUME: CleanupStep.UNMOUNT,
    CleanupStep.UNMOUNT: CleanupStep.REMOVE_RECORD,
    CleanupStep.REMOVE_RECORD: CleanupStep.DONE,
}
_SKIPPED_AFTER: Final = {
    CleanupStep.DELETE_CLAIM: DELETE_TRIES,
    CleanupStep.UNMAP: 1,
    CleanupStep.DELETE_VOLUME: DELETE_TRIES,
}
"""Number of failures after which the sequence goes on without the step."""


def after_step(state: VolumeCleanup, result: StepResult) -> VolumeCleanup:
    """Return the state after the present step had this result."""
    tries = state.tries + 1
    is_over = result is StepResult.DONE or tries >= _SKIPPED_AFTER.get(state.step, tries + 1)
    if state.step is CleanupStep.DONE or not is_over:
        return msgspec.structs.replace(state, tries=tries)
    is_unmapped = state.is_unmapped or (state.step is CleanupStep.UNMAP and result is StepResult.DONE)
    return msgspec.structs.replace(state, step=_NEXT[state.step], tries=0, is_unmapped=is_unmapped)
