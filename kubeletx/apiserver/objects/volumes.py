"""`ClaimedVolumes`: finds the persistent volumes that the claims of pods are bound to.

    bound ─► kept, and used while the API server does not answer
    missing or not bound ─► read again repeatedly; `tell` is called for its pods once it is bound

A node may read only the claims of its own pods and their volumes, one by one. It may not watch claims, so those that
are not bound are read again: after a second, later every ten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from kubeletx.api import Clock, ClusterVolume, KubeletxError, NotFound, ObjectUser, PodUid, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.requests import Patch
from kubeletx.kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeletx.kube.text.quantity import NANO, Format, Quantity, to_bytes
from kubeletx.kube.types.meta import json_name
from kubeletx.kube.types.objects import PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec
from kubeletx.pods.admission import selects
from kubeletx.volumes.drivers.table import DRIVER_SOURCES

BOUND = "Bound"
_RESIZING = ("Resizing", "FileSystemResizePending")
"""Conditions of a claim that end with the expansion of its file system on the node."""
FIRST_SECONDS, CAP_SECONDS = 1.0, 10.0

_Key = tuple[str, str]


class _NotUsable(Unavailable):
    """Raised when the API server's answer shows that the claim cannot be used; not raised for a failed request."""


class ClaimedVolumes:
    """Finds the persistent volumes that claims are bound to. `run` repeats reads of claims that were not usable."""

    def __init__(
        self,
        client: KubeClient,
        tell: Callable[[PodUid], None],
        node: Callable[[], tuple[str, Mapping[str, str]]],
        *,
        clock: Clock,
        first_seconds: float = FIRST_SECONDS,
    ) -> None:
        """`tell`: called with the UID of a pod whose claim has become usable.

        `node`: returns the node's name and its labels in the API server.
        """
        self._client = client
        self._tell = tell
        self._node = node
        self._clock = clock
        self._first_seconds = first_seconds
        self._known: dict[_Key, ClusterVolume] = {}
        self._users: dict[_Key, set[PodUid]] = {}
        self._waiting: set[_Key] = set()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Repeat the reads of claims that were missing or not usable, until cancelled."""
        delay = self._first_seconds
        while True:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                delay = self._first_seconds
            await self._clock.sleep(delay)
            delay = min(delay * 2, CAP_SECONDS)
            for key in list(self._waiting):
                await self._try(key)

    async def find(self, user: ObjectUser, claim: str) -> ClusterVolume | None:
        """Return the volume that a claim of the pod is bound to; None if the claim does not exist.

        While the API server fails, the volume found before is returned. Raises Unavailable if the claim is not usable
        or nothing is known about it.
        """
        namespace = user.namespace
        key = (namespace, claim)
        self._users.setdefault(key, set()).add(user.uid)
        try:
            asked = await self._claim(*key)
            if claim in user.own_claims and not _is_owned(asked, user.uid):
                raise _NotUsable(f"persistentvolumeclaim {namespace}/{claim} was not made for this pod")
            volume = await self._volume(asked)
        except NotFound:
            self._wait(key)
            return None
        except _NotUsable:
            self._wait(key)
            raise
        except (
            KubeletxError
        ) as error:  # also PermissionDenied of the Node authorizer, which may not know a new pod yet
            if key in self._known:
                return self._known[key]
            self._wait(key)
            raise Unavailable(str(error)) from error
        if key in self._users:  # else the pod is gone meanwhile
            self._known[key] = volume
        return volume

    async def note_expanded(self, user: ObjectUser, claim: str, size_bytes: int) -> None:
        """Write the new size of the claim's file system to its status; does nothing if the claim is gone.

        As the kubelet does after an expansion on the node: status.capacity, and no condition that an expansion of the
        file system is pending. Raises Unavailable if that failed, or another writer changed the claim meanwhile.
        """
        try:
            current = await self._claim(user.namespace, claim)
            path = PERSISTENT_VOLUME_CLAIMS.path(user.namespace, claim, "status")
            await self._client.patch(
                path, _expanded(current, size_bytes), PersistentVolumeClaim, kind=Patch.MERGE
            )
        except NotFound:
            return
        except KubeletxError as error:
            raise Unavailable(f"persistentvolumeclaim {user.namespace}/{claim}: {error}") from error

    def leave(self, uid: PodUid) -> None:
        """Forget the claims of a pod that is gone, unless other pods use them."""
        for key, users in list(self._users.items()):
            users.discard(uid)
            if not users:
                del self._users[key]
                self._known.pop(key, None)
                self._waiting.discard(key)

    def _wait(self, key: _Key) -> None:
        self._known.pop(key, None)
        if key not in self._users:  # the pod is gone meanwhile: no caller waits
            return
        self._waiting.add(key)
        self._news.set()

    async def _try(self, key: _Key) -> None:
        try:
            await self._volume(await self._claim(*key))
        except KubeletxError:  # not bound yet, or no answer: read again at the next interval
            return
        self._waiting.discard(key)
        for uid in list(self._users.get(key, ())):
            self._tell(uid)

    async def _claim(self, namespace: str, name: str) -> PersistentVolumeClaim:
        return await self._client.get(PERSISTENT_VOLUME_CLAIMS.path(namespace, name), PersistentVolumeClaim)

    async def _volume(self, claim: PersistentVolumeClaim) -> ClusterVolume:
        what = f"persistentvolumeclaim {claim.metadata.namespace}/{claim.metadata.name}"
        if claim.status.phase != BOUND or not claim.spec.volume_name:
            raise _NotUsable(f"{what} is not bound ({claim.status.phase or 'no phase'})")
        try:
            volume = await self._client.get(
                PERSISTENT_VOLUMES.path("", claim.spec.volume_name), PersistentVolume
            )
        except NotFound as error:
            raise _NotUsable(f"{what}: {error}") from error
        owner = volume.spec.claim_ref
        if owner is None or owner.uid != claim.metadata.uid:
            raise _NotUsable(f"{what}: volume {volume.metadata.name} is bound to another claim")
        return self._translated(claim, volume)

    def _translated(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> ClusterVolume:
        spec = volume.spec
        affinity = spec.node_affinity.required if spec.node_affinity is not None else None
        return ClusterVolume(
            name=volume.metadata.name,
            uid=str(volume.metadata.uid),
            claim=claim.metadata.name,
            is_block=spec.volume_mode == "Block",
            mount_options=spec.mount_options,
            access_modes=spec.access_modes,
            capacity_bytes=_storage(spec.capacity),
            claim_bytes=_storage(claim.status.capacity),
            is_here=affinity is None or selects(affinity, *self._node()),
            **_source(spec),
        )


def _source(spec: PersistentVolumeSpec) -> dict[str, Any]:
    """Return the fields of `ClusterVolume` that depend on the source of the persistent volume."""
    if spec.local is not None:
        return {"kind": "local", "path": spec.local.path, "fs_type": spec.local.fs_type or ""}
    if spec.host_path is not None:
        return {"kind": "hostPath", "path": spec.host_path.path, "check": spec.host_path.type or ""}
    if (nfs := spec.nfs) is not None:
        return {"kind": "nfs", "path": nfs.path, "server": nfs.server, "read_only": nfs.read_only}
    for name in PersistentVolumeSpec.__struct_fields__:
        if (field := json_name(name)) in DRIVER_SOURCES and (source := getattr(spec, name)) is not None:
            return {"kind": field, "source": source, "read_only": source.get("readOnly") is True}
    return {"kind": ""}


def _expanded(claim: PersistentVolumeClaim, size_bytes: int) -> dict[str, Any]:
    """Return the patch of a claim's status after its file system has grown."""
    amounts = {**claim.status.capacity, "storage": str(Quantity(size_bytes * NANO, Format.BINARY))}
    status: dict[str, Any] = {"capacity": amounts}
    left = [condition for condition in claim.status.conditions if condition.type not in _RESIZING]
    if len(left) < len(claim.status.conditions):
        status["conditions"] = left or None
    return {"metadata": {"resourceVersion": claim.metadata.resource_version}, "status": status}


def _storage(amounts: Mapping[str, str]) -> int:
    """Return the amount of storage in bytes; 0 if it is missing or malformed."""
    try:
        return to_bytes(amounts.get("storage", "0"))
    except ValueError:
        return 0


def _is_owned(claim: PersistentVolumeClaim, uid: PodUid) -> bool:
    return any(reference.controller and reference.uid == uid for reference in claim.metadata.owner_references)
