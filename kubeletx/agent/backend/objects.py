"""`ObjectBackend`: config maps, secrets and claims without a cluster, as the admin socket shows and changes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kubeletx.api import NotFound
from kubeletx.api.names import CONFIG_SOURCE
from kubeletx.kube.manifests.objects import OBJECT_KINDS, LocalObject, key_of, shown
from kubeletx.kube.types.objects import PersistentVolumeClaim
from kubeletx.server.views import ApplyResult
from kubeletx.static.applied_objects import AppliedObjects
from kubeletx.static.local_claims import path_of
from kubeletx.static.local_objects import LocalObjects


class ObjectBackend:
    """Lists, applies and deletes the objects. Implements `ObjectVerbs`."""

    def __init__(self, objects: LocalObjects, applied: AppliedObjects, claims: Path) -> None:
        """`claims`: directory of the volumes of claims."""
        self._objects = objects
        self._applied = applied
        self._claims = claims

    async def list_objects(self, kind: str) -> Sequence[dict[str, Any]]:
        if kind not in OBJECT_KINDS:
            raise NotFound(f"{kind!r} is not a kind of this node; use {', '.join(OBJECT_KINDS)}")
        return [self._shown(item) for item in self._objects.listed(kind)]

    async def apply_object(self, item: LocalObject, *, dry_run: bool = False) -> ApplyResult:
        before = self._objects.find(key_of(item)) if dry_run else None
        outcome, made = await self._applied.apply(item, dry_run=dry_run)
        return ApplyResult(action=outcome.value, object=self._shown(made, before))

    async def delete_object(self, kind: str, namespace: str, name: str) -> None:
        await self._applied.delete((kind, namespace, name))

    def _shown(self, item: LocalObject, before: LocalObject | None = None) -> dict[str, Any]:
        """Return the JSON form, with the object's source; a claim also gets its state and its directory."""
        built = shown(item, before)
        if (owner := self._objects.owner(key_of(item))) is not None:
            notes = built["metadata"].get("annotations", {})
            built["metadata"]["annotations"] = {**notes, CONFIG_SOURCE: owner}
        if isinstance(item, PersistentVolumeClaim):
            size = item.spec.resources.requests["storage"]
            built["status"] = {"phase": "Bound", "capacity": {"storage": size}}
            if (path := path_of(item, self._claims)) is not None:
                built["status"]["path"] = str(path)
        return built
