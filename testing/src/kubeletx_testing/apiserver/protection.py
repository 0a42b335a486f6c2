"""Controllers that hold claims and PersistentVolumes until nothing uses them.

A claim that is deleted loses its finalizer when no pod on a node uses it. A PersistentVolume that is deleted loses its
finalizer unless it is bound to a claim that exists. Source: kubernetes,
pkg/controller/volume/{pvcprotection,pvprotection}.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from .errors import Json
from .pod_references import claims
from .resources import Resource, resource
from .settings import Settings
from .store import Change, Store, key_of
from .volumes import CLAIM_FINALIZER, CLAIMS, VOLUME_FINALIZER, VOLUMES

PODS: Final = resource("pods")


def follower(store: Store, settings: Settings) -> Callable[[Change], None]:
    """Return a listener for changes of the store that removes finalizers of objects that nothing uses.

    It does nothing unless `Settings.controllers` is set.
    """

    def release_unused(change: Change) -> None:
        if not settings.controllers:
            return
        if change.table in (PODS.full_name, CLAIMS.full_name):
            for claim in _marked(store, CLAIMS, CLAIM_FINALIZER):
                if not _is_used(store, claim):
                    _release(store, CLAIMS, claim, CLAIM_FINALIZER)
        if change.table in (CLAIMS.full_name, VOLUMES.full_name):
            for volume in _marked(store, VOLUMES, VOLUME_FINALIZER):
                if not _is_bound(store, volume):
                    _release(store, VOLUMES, volume, VOLUME_FINALIZER)

    return release_unused


def _marked(store: Store, of: Resource, finalizer: str) -> list[Json]:
    values = [stored.value for stored in store.each(of)]
    return [
        value
        for value in values
        if "deletionTimestamp" in value["metadata"]
        and finalizer in (value["metadata"].get("finalizers") or ())
    ]


def _is_used(store: Store, claim: Json) -> bool:
    namespace, name = key_of(claim)
    return any(
        pod.value["spec"].get("nodeName") and name in claims(pod.value) for pod in store.all(PODS, namespace)
    )


def _is_bound(store: Store, volume: Json) -> bool:
    bound = (volume.get("spec") or {}).get("claimRef") or {}
    claim = store.find(CLAIMS, (bound.get("namespace", ""), bound.get("name", "")))
    return (
        (volume.get("status") or {}).get("phase") == "Bound"
        and claim is not None
        and bound.get("uid") in ("", None, claim.value["metadata"]["uid"])
    )


def _release(store: Store, of: Resource, value: Json, finalizer: str) -> None:
    """Remove the finalizer, and the object if it was the last one."""
    metadata = value["metadata"]
    left = [other for other in metadata["finalizers"] if other != finalizer]
    if not left:
        store.remove(of, key_of(value))
        return
    store.put(of, {**value, "metadata": {**metadata, "finalizers": left}})
