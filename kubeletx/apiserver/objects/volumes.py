"""`ClaimedVolumes`: finds the persistent volumes that the claims of pods are bound to.

    bound ─► kept, and used while the API server does not answer
    missing or not bound ─► read again repeatedly; `tell` is called for its pods once it is bound

A node may read only the claims of its own pods and their volumes, one by one. It may not watch claims, so those that
are not bound are read again: after a second, later every ten.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from kubeletx.api import Clock, ClusterVolume, KubeletxError, NotFound, ObjectUser, PodUid, Unavailable
from kubeletx.kube.client import KubeClient
from kubeletx.kube.client.resources import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kubeletx.kube.types.objects import PersistentVolume, PersistentVolumeClaim
from kubeletx.pods.admission import selects

BOUND = "Bound"
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
    ) -> None:
        """`tell`: called with the UID of a pod whose claim has become usable.

        `node`: returns the node's name and its labels in the API server.
        """
        self._client = client
        self._tell = tell
        self._node = node
        self._clock = clock
        self._known: dict[_Key, ClusterVolume] = {}
        self._users: dict[_Key, set[PodUid]] = {}
        self._waiting: set[_Key] = set()
        self._news = asyncio.Event()

    async def run(self) -> None:
        """Repeat the reads of claims that were missing or not usable, until cancelled."""
        delay = FIRST_SECONDS
        while True:
            if not self._waiting:
                self._news.clear()
                await self._news.wait()
                delay = FIRST_SECONDS
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
            found = await self._volume(asked)
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
            self._known[key] = found
        return found

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
        return self._translated(volume)

    def _translated(self, volume: PersistentVolume) -> ClusterVolume:
        spec, name = volume.spec, volume.metadata.name
        affinity = spec.node_affinity.required if spec.node_affinity is not None else None
        kind, path, server, read_only, check = "unknown", "", "", False, ""
        if spec.local is not None:
            kind, path = "local", spec.local.path
        elif spec.host_path is not None:
            kind, path, check = "hostPath", spec.host_path.path, spec.host_path.type or ""
        elif spec.nfs is not None:
            kind, path, server = "nfs", spec.nfs.path, spec.nfs.server
            read_only = spec.nfs.read_only
        elif spec.csi is not None:
            kind = f"csi, driver {spec.csi.get('driver', '')}"
        return ClusterVolume(
            name=name,
            kind=kind,
            path=path,
            server=server,
            read_only=read_only,
            is_block=spec.volume_mode == "Block",
            check=check,
            mount_options=spec.mount_options,
            is_here=affinity is None or selects(affinity, *self._node()),
        )


def _is_owned(claim: PersistentVolumeClaim, uid: PodUid) -> bool:
    return any(one.controller and one.uid == uid for one in claim.metadata.owner_references)
