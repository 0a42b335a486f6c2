"""`LocalObjects`: config maps, secrets and claims of this node, for the pods that do not come from a cluster.

    manifest files ──► ManifestOwnership ──┐
    kubeletx apply ──► AppliedObjects ─────┴─► put ─► pods that refer to a changed object write their volumes again

Pods of the API server never see these objects, and local pods never see those of the cluster. An object belongs to
`kubeletx apply`, or else to the first manifest in sorted order that defines it. An immutable object changes only after
its manifest was removed. A claim is bound at once: see `local_claims`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from kubeletx.api import (
    ClusterService,
    ClusterServiceAccount,
    ClusterVolume,
    InvalidPod,
    ObjectData,
    ObjectUser,
    PodUid,
    TokenParameters,
    Unavailable,
    Unsupported,
)
from kubeletx.kube.manifests.objects import Key, LocalObject, content_of, data_of, key_of, named
from kubeletx.kube.types.objects import ConfigMap, PersistentVolumeClaim, Secret
from kubeletx.pods.model.sources import APPLIED

from .local_claims import volume_of

WAIT_SECONDS: Final = 5.0
"""Longest wait in seconds for the first list of the manifests, before an object counts as unknown."""
CLAIM: Final = "PersistentVolumeClaim"


class LocalObjects:
    """Objects that local pods refer to. Implements `kubeletx.api.ClusterObjects`.

    `origin`: path of a manifest, or `APPLIED`.
    """

    def __init__(self, *, claims: Path, wait_seconds: float = WAIT_SECONDS) -> None:
        """`claims`: directory of the volumes of claims. `wait_seconds`: see `WAIT_SECONDS`."""
        self.unreadable: dict[Key, str] = {}
        """Objects whose stored files are broken, with the error: they count as unknown, not as missing."""
        self.on_concerned: Callable[[set[str]], None] = lambda _origins: None
        """Called with the other origins whose `problem` may be another one after a `put`."""
        self._claims = claims
        self._wait_seconds = wait_seconds
        self._versions = itertools.count(1)
        """Resource versions, by which a watch sees also the change of a secret to values of equal size."""
        self._brought: defaultdict[Key, dict[str, LocalObject]] = defaultdict(dict)
        self._keys: dict[str, set[Key]] = {}
        self._frozen: set[tuple[str, Key]] = set()
        self._users: dict[PodUid, ObjectUser] = {}
        self._claimed: defaultdict[Key, set[PodUid]] = defaultdict(set)
        self._listeners: list[Callable[[PodUid], None]] = []
        self._is_complete = asyncio.Event()

    def subscribe(self, listener: Callable[[PodUid], None]) -> None:
        """Call `listener` with the UID of each pod that refers to an object that has changed."""
        self._listeners.append(listener)

    def set_complete(self) -> None:
        """Report that all manifests were read once: from now on, an object that is not here does not exist."""
        if not self._is_complete.is_set():
            self._is_complete.set()
            self._tell(None)

    def put(self, origin: str, items: Iterable[LocalObject]) -> None:
        """Replace the objects of an origin."""
        new, concerned, changed = {key_of(item): item for item in items}, {origin}, set()
        for key in {*self._keys.get(origin, ()), *new}:
            before, here = self.find(key), self._brought[key]
            concerned.update(here)
            self._frozen.discard((origin, key))
            if (item := new.get(key)) is None:
                here.pop(origin, None)
            elif (known := here.get(origin)) is None or not self._is_frozen(origin, key, known, item):
                old = known.metadata if known is not None else item.metadata
                since, version = (
                    old.creation_timestamp or item.metadata.creation_timestamp,
                    old.resource_version,
                )
                made = replace(item.metadata, creation_timestamp=since, resource_version=version)
                if (item := replace(item, metadata=made)) != known:
                    made = replace(made, resource_version=str(next(self._versions)))
                here[origin] = replace(item, metadata=made)
            if not here:
                del self._brought[key]
            if self.find(key) != before:
                changed.add(key)
        self._keys[origin] = set(new)
        self.on_concerned(concerned - {origin})
        if changed:
            self._tell(changed)

    def is_frozen(self, origin: str) -> bool:
        """Return True if an immutable object of the manifest keeps its content, against what the manifest has now."""
        return any(owner == origin for owner, _ in self._frozen)

    def problem(self, origin: str) -> InvalidPod | None:
        """Return the first reason why an object of the manifest is not used as written; None if there is none."""
        for key in sorted(self._keys.get(origin, ())):
            fix = "rename one of the two objects or remove one of them"
            if (owner := self.owner(key)) != origin:
                who = "'kubeletx apply'" if owner == APPLIED else owner
                problem = f"{named(key)} is already defined by {who}"
                return InvalidPod(obj=origin, field="metadata.name", problem=problem, fix=fix)
            if (origin, key) in self._frozen:
                problem = f"{named(key)} is immutable and keeps its content"
                fix = "use another name, or remove the file and write it again"
                return InvalidPod(obj=origin, field="data", problem=problem, fix=fix)
        return None

    def owner(self, key: Key) -> str | None:
        """Return the origin of the object that pods see; None if no origin has it."""
        origins = self._brought.get(key)
        return min(origins, key=lambda origin: (origin != APPLIED, origin)) if origins else None

    def find(self, key: Key) -> LocalObject | None:
        """Return the object; None if it does not exist."""
        owner = self.owner(key)
        return self._brought[key][owner] if owner is not None else None

    def listed(self, kind: str) -> Iterator[LocalObject]:
        """Yield the objects of one kind, sorted by namespace and name."""
        for key in sorted(key for key in self._brought if key[0] == kind):
            if (item := self.find(key)) is not None:
                yield item

    def users_of_claim(self, key: Key) -> list[str]:
        """Return the pods that use the claim, each as namespace/name, sorted."""
        users = (self._users.get(uid) for uid in self._claimed.get(key, ()))
        return sorted(f"{user.namespace}/{user.name}" for user in users if user is not None)

    # --- ClusterObjects ---

    def follow(self, pod: ObjectUser) -> None:
        self._users[pod.uid] = pod

    def leave(self, uid: PodUid) -> None:
        self._users.pop(uid, None)
        for key, users in list(self._claimed.items()):
            users.discard(uid)
            if not users:
                del self._claimed[key]

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        item = await self._find(("ConfigMap", namespace, name))
        return data_of(item) if isinstance(item, ConfigMap) else None

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        item = await self._find(("Secret", namespace, name))
        return data_of(item) if isinstance(item, Secret) else None

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        raise Unsupported(
            f"audience {wanted.audience!r}: a pod without a cluster has no service account tokens; remove the volume"
        )

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        return None

    async def list_services(self, namespace: str) -> tuple[ClusterService, ...]:
        return ()

    async def find_volume(self, uid: PodUid, claim: str) -> ClusterVolume | None:
        user = self._users.get(uid)
        if user is None:
            raise Unavailable(f"pod {uid} is not here any more")
        key = CLAIM, user.namespace, claim
        self._claimed[key].add(uid)
        item = await self._find(key)
        if not isinstance(item, PersistentVolumeClaim):
            return None
        try:
            return await asyncio.to_thread(volume_of, item, self._claims)
        except OSError as err:
            problem = f"directory of {named(key)} cannot be made: {err.strerror}: {err.filename}"
            raise Unavailable(problem) from err

    async def find_volume_secret(self, uid: PodUid, namespace: str, name: str) -> ObjectData | None:
        return await self.find_secret(namespace, name)

    async def note_expanded(self, uid: PodUid, claim: str, size_bytes: int) -> None:
        """Do nothing: a claim shows the size that it requests."""

    # --- private ------------------------------------------------------------------------------------

    async def _find(self, key: Key) -> LocalObject | None:
        item = self.find(key)
        if item is None and key in self.unreadable:
            raise Unavailable(f"{named(key)} cannot be read: {self.unreadable[key]}")
        if item is None and not self._is_complete.is_set():
            try:
                async with asyncio.timeout(self._wait_seconds):
                    await self._is_complete.wait()
            except TimeoutError as err:
                raise Unavailable(f"{named(key)} cannot be read: the manifests are not read yet") from err
            item = self.find(key)
        return item

    def _is_frozen(self, origin: str, key: Key, known: LocalObject, item: LocalObject) -> bool:
        """Return True, and remember it for `problem`, if the object is immutable and `item` differs from it."""
        if isinstance(known, PersistentVolumeClaim) or not known.immutable:
            return False
        if content_of(known) != content_of(item):
            self._frozen.add((origin, key))
        return (origin, key) in self._frozen

    def _tell(self, changed: set[Key] | None) -> None:
        """Call the listeners for the pods that refer to one of these objects; None: for all pods."""
        for user in tuple(self._users.values()):
            if changed is None or any(self._refers(user, key) for key in changed):
                for listener in self._listeners:
                    listener(user.uid)

    def _refers(self, user: ObjectUser, key: Key) -> bool:
        kind, namespace, name = key
        if kind == CLAIM:
            return user.uid in self._claimed.get(key, ())
        return namespace == user.namespace and name in (
            user.config_maps if kind == "ConfigMap" else user.secrets
        )
