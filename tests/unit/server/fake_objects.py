"""`FakeObjects`: config maps, secrets and claims of a fake agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kubeletx.api import NotFound
from kubeletx.kube.manifests.objects import Key, LocalObject, key_of, named, shown
from kubeletx.server.views import ApplyResult


class FakeObjects:
    """Keeps applied objects in `items`. Implements `ObjectVerbs`."""

    def __init__(self) -> None:
        self.items: dict[Key, LocalObject] = {}

    async def list_objects(self, kind: str) -> Sequence[dict[str, Any]]:
        found = [shown(item) for key, item in sorted(self.items.items()) if key[0] == kind]
        for item in found:
            item["metadata"]["annotations"] = {"kubernetes.io/config.source": "applied"}
            item["metadata"]["creationTimestamp"] = "2026-01-01T12:00:00Z"
            item["status"] = {"phase": "Bound", "capacity": {"storage": "1Gi"}, "path": "/srv/data"}
        return found

    async def apply_object(self, item: LocalObject, *, dry_run: bool = False) -> ApplyResult:
        before = self.items.get(key_of(item)) if dry_run else None
        outcome = "configured" if key_of(item) in self.items else "created"
        if not dry_run:
            self.items[key_of(item)] = item
        return ApplyResult(action=outcome, object=shown(item, before))

    async def delete_object(self, kind: str, namespace: str, name: str) -> None:
        key = (kind, namespace, name)
        if self.items.pop(key, None) is None:
            raise NotFound(f"{named(key)} not found")
