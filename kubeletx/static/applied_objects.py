"""Config maps, secrets and claims that an operator applied on this node, each in a file with mode 0600.

The files are in ``<root-dir>/applied/objects``, named as those of applied pods (`applied_files`). A broken file is
reported at the agent's start; its object then counts as unknown until it is applied again or deleted.
"""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

import structlog
from msgspec.structs import replace

from kubeletx.api import Clock, Conflict, InvalidPod, NotFound
from kubeletx.kube.manifests.load import load_all
from kubeletx.kube.manifests.objects import (
    OBJECT_KINDS,
    Key,
    LocalObject,
    content_of,
    key_of,
    named,
    requested_bytes,
)
from kubeletx.kube.types.objects import PersistentVolumeClaim
from kubeletx.pods.model.sources import APPLIED

from . import applied_files
from .applied import ApplyOutcome, change
from .files import read_manifest
from .local_objects import LocalObjects

log = structlog.get_logger(__name__)


class AppliedObjects:
    """Stores the applied objects, and gives them to `LocalObjects`. Call `load` before the first pod starts."""

    def __init__(self, *, directory: Path, objects: LocalObjects, clock: Clock) -> None:
        """`directory`: ``<root-dir>/applied/objects``, made if missing."""
        self._directory = directory
        self._objects = objects
        self._clock = clock
        self._items: dict[Key, LocalObject] = {}
        self._lock = asyncio.Lock()

    async def load(self) -> None:
        """Read the files of the objects that were applied earlier."""
        for path in await asyncio.to_thread(applied_files.list_files, self._directory):
            try:
                data = await asyncio.to_thread(read_manifest, str(path))
                (loaded,) = load_all(data.data, str(path)).objects
                if self._path(key_of(loaded.item)) != path:
                    raise ValueError("the name of the file is not that of its object")
            except (InvalidPod, OSError, ValueError) as err:
                log.error("Failed to read an applied object", path=str(path), err=str(err))
                self._objects.unreadable |= {key: str(err) for key in _keys_of(path.stem)}
                continue
            self._items[key_of(loaded.item)] = loaded.item
        self._objects.put(APPLIED, self._items.values())

    async def apply(self, item: LocalObject, *, dry_run: bool = False) -> tuple[ApplyOutcome, LocalObject]:
        """Create this object, or change the one of its name; returns the outcome when the file is on disk.

        Raises Conflict if a manifest defines the object or it may not change so, Unavailable for a disk error.
        """
        async with self._lock:
            key = key_of(item)
            self._refuse_foreign(key)
            current = self._items.get(key)
            metadata = replace(
                item.metadata,
                uid=current.metadata.uid if current else str(uuid.uuid4()),
                creation_timestamp=current.metadata.creation_timestamp if current else self._clock.now(),
                generate_name="",
                resource_version="",
                deletion_timestamp=None,
                finalizers=(),
            )
            item = replace(item, metadata=metadata)
            if item == current:
                return ApplyOutcome.UNCHANGED, item
            if current is not None and (why := _forbidden(current, item)):
                raise Conflict(f"{named(key)}: {why}")
            if not dry_run:
                await change(f"write {named(key)}", applied_files.write, self._path(key), item)
                self._items[key] = item
                self._objects.unreadable.pop(key, None)
                self._objects.put(APPLIED, self._items.values())
            return ApplyOutcome.CONFIGURED if current else ApplyOutcome.CREATED, item

    async def delete(self, key: Key) -> None:
        """Delete an applied object; a claim's directory is kept.

        Raises NotFound, and Conflict if the object comes from a manifest or is a claim that pods use.
        """
        async with self._lock:
            self._refuse_foreign(key)
            if key not in self._items and key not in self._objects.unreadable:
                raise NotFound(f"{named(key)} not found")
            if users := self._objects.users_of_claim(key):
                raise Conflict(f"{named(key)} is used by pod {users[0]}; delete the pod first")
            await change(f"remove {named(key)}", applied_files.remove, self._path(key))
            self._items.pop(key, None)
            self._objects.unreadable.pop(key, None)
            self._objects.put(APPLIED, self._items.values())

    def _path(self, key: Key) -> Path:
        kind, namespace, name = key
        return applied_files.path_of(self._directory, f"{kind.lower()}_{namespace}", name)

    def _refuse_foreign(self, key: Key) -> None:
        owner = self._objects.owner(key)
        if owner not in (None, APPLIED):
            raise Conflict(f"{named(key)} comes from manifest {owner}; change or remove it there")


def _keys_of(stem: str) -> list[Key]:
    """Return the key that the name of a file tells; none if the name was shortened."""
    word, *rest = stem.split("_")
    return [(kind, rest[0], rest[1]) for kind in OBJECT_KINDS if len(rest) == 2 and kind.lower() == word]


def _forbidden(current: LocalObject, new: LocalObject) -> str:
    """Return why the object may not change so; empty if it may."""
    if isinstance(current, PersistentVolumeClaim):
        assert isinstance(new, PersistentVolumeClaim)
        if replace(current.spec, resources=new.spec.resources) != new.spec:
            return "spec may not change except for resources.requests.storage; delete the claim and apply it again"
        if requested_bytes(new) < requested_bytes(current):
            return "spec.resources.requests.storage may not shrink; write the present size or a larger one"
        return ""
    if current.immutable and content_of(current) != content_of(new):
        return "data: field is immutable when `immutable` is set; delete the object and apply it again"
    return ""
