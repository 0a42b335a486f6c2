"""`FencedStorage`: pods that write only to storage that a fence has cut off."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from kubeletx.api import NotFound
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeletx.kube.types.core import Pod
from kubeletx.kube.types.objects import PersistentVolume, PersistentVolumeClaim
from kubeletx.kube.types.volumes import VolumeSource

ALL: Final = "*"
"""Scope of a fence of all storage that is not local."""
_LOCAL: Final = frozenset(
    ("hostPath", "local", "emptyDir", "secret", "configMap", "downwardAPI", "projected", "image", "gitRepo")
)
"""Sources that another node's pods do not write to."""
_SOURCES: Final = frozenset(field.encode_name for field in msgspec.structs.fields(VolumeSource)) | {"local"}


class FencedStorage:
    """Storage that a fence has cut off. `scopes`: names of PersistentVolumes, drivers and storage classes, or `ALL`."""

    def __init__(self, client: KubeClient, scopes: Sequence[str]) -> None:
        self._client = client
        self._scopes = frozenset(scopes)
        self._volumes: dict[str, frozenset[str] | None] = {}

    async def covers(self, pod: Pod) -> bool:
        """Return True if the pod uses fenced storage, and no other storage that is not local.

        A claim or volume that cannot be found may be anything: the pod then stays.
        """
        is_covered = False
        for volume in pod.spec.volumes:
            claim = volume.persistent_volume_claim.claim_name if volume.persistent_volume_claim else ""
            if volume.ephemeral is not None:
                claim = f"{pod.metadata.name}-{volume.name}"
            names = await self._claimed(pod.metadata.namespace, claim) if claim else _names(volume)
            if names is None:
                return False
            if not names:
                continue
            if ALL not in self._scopes and not names & self._scopes:
                return False
            is_covered = True
        return is_covered

    async def _claimed(self, namespace: str, name: str) -> frozenset[str] | None:
        """Return the names of the claim's volume; empty: it is local; None: it is not known."""
        try:
            claim = await self._client.get(
                PERSISTENT_VOLUME_CLAIMS.path(namespace, name), PersistentVolumeClaim
            )
            bound = claim.spec.volume_name
            if bound and bound not in self._volumes:
                volume = await self._client.get(PERSISTENT_VOLUMES.path(name=bound), PersistentVolume)
                names = _names(volume.spec)
                own = {bound, volume.spec.storage_class_name} - {""}
                self._volumes[bound] = names | own if names else names
        except NotFound:
            return None
        return self._volumes.get(bound)


def _names(source: msgspec.Struct) -> frozenset[str]:
    """Return the driver and the kind of the volume's source; empty if it is local."""
    found: set[str] = set()
    for kind, value in _sources(source):
        if kind not in _LOCAL:
            driver = value.get("driver", "") if isinstance(value, Mapping) else getattr(value, "driver", "")
            found |= {kind, str(driver)} - {""}
    return frozenset(found)


def _sources(source: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    for field in msgspec.structs.fields(source):
        value = getattr(source, field.name)
        if value is not None and field.encode_name in _SOURCES:
            yield field.encode_name, value
