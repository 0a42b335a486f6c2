"""Volumes of claims without a cluster: a directory of the node, or a volume of the storage agent.

A claim gets the directory ``<root-dir>/claims/NAMESPACE/NAME`` when the first pod uses it. Its size is not limited to
the requested one. It is kept when the claim is deleted, and a claim of the same name uses it again. With the storage
class `STORAGE_AGENT_CLASS`, the claim's annotations ``storage.kubeletx.io/OPTION`` are options of the storage agent
(docs/storage.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeletx.api import ClusterVolume
from kubeletx.kube.manifests.objects import STORAGE_AGENT_CLASS, requested_bytes
from kubeletx.kube.types.objects import PersistentVolumeClaim

OPTION_PREFIX: Final = "storage.kubeletx.io/"
_MODE: Final = 0o777
"""Containers of any user may write, as in an emptyDir; the directory above is for the agent's user only."""


def path_of(claim: PersistentVolumeClaim, claims: Path) -> Path | None:
    """Return the claim's directory below `claims`; None for a claim of the storage agent."""
    if claim.spec.storage_class_name == STORAGE_AGENT_CLASS:
        return None
    return claims / claim.metadata.namespace / claim.metadata.name


def volume_of(claim: PersistentVolumeClaim, claims: Path) -> ClusterVolume:
    """Return the claim's volume, and make its directory below `claims` if it is missing. Raises OSError."""
    metadata, spec = claim.metadata, claim.spec
    path = path_of(claim, claims)
    if path is not None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.is_dir():
            path.mkdir()
            path.chmod(_MODE)  # the umask is not applied
    options = {
        key.removeprefix(OPTION_PREFIX): text
        for key, text in metadata.annotations.items()
        if key.startswith(OPTION_PREFIX)
    }
    options = {"size": spec.resources.requests["storage"], **options}
    return ClusterVolume(
        name=f"{metadata.namespace}.{metadata.name}",
        uid=str(metadata.uid),
        claim=metadata.name,
        kind="local" if path is not None else "flexVolume",
        path=str(path or ""),
        is_block=spec.volume_mode == "Block",
        access_modes=spec.access_modes,
        capacity_bytes=requested_bytes(claim),
        source={} if path is not None else {"driver": STORAGE_AGENT_CLASS, "options": options},
    )
