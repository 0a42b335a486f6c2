"""`VolumeObjects`: looks up and deletes the claim and the PersistentVolume of a volume of a deleted storage cluster.

Only objects of the agent's own driver are deleted, and only after a look-up: deletions carry the UID.
"""

from __future__ import annotations

import msgspec

from kubeletx.api import Conflict, NotFound
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES

from ..attachments.modes import read_volume
from .sequence import VolumeCleanup


class VolumeObjects:
    """Claims and PersistentVolumes of a cluster."""

    def __init__(self, client: KubeClient) -> None:
        """`client`: its identity may get and delete PersistentVolumes and claims."""
        self._client = client

    async def look_up(self, state: VolumeCleanup) -> VolumeCleanup:
        """Return the state with the claim and the PersistentVolume of the volume."""
        found = await read_volume(self._client, state.volume.name)
        looked_up = msgspec.structs.replace(state, is_looked_up=True)
        if not found.is_ours:
            return looked_up
        return msgspec.structs.replace(
            looked_up,
            claim_namespace=found.claim.namespace,
            claim_name=found.claim.name,
            claim_uid=found.claim.uid,
            volume_uid=found.uid,
        )

    async def delete_claim(self, state: VolumeCleanup) -> bool:
        """Delete the claim; returns False if there was none. Pods that still run keep it, marked as deleted."""
        if not state.claim_name:
            return False
        path = PERSISTENT_VOLUME_CLAIMS.path(state.claim_namespace, state.claim_name)
        return await self._delete(path, state.claim_uid)

    async def delete_volume(self, state: VolumeCleanup) -> bool:
        """Delete the PersistentVolume; returns False if there was none."""
        if not state.volume_uid:
            return False
        return await self._delete(PERSISTENT_VOLUMES.path(name=state.volume.name), state.volume_uid)

    async def _delete(self, path: str, uid: str) -> bool:
        try:
            await self._client.delete(path, uid=uid)
        except (NotFound, Conflict):  # Conflict: another object has the name now
            return False
        return True
