"""`ObjectSet`: the cluster objects that a pod's volumes or a container's environment need.

They are all fetched first (see `fetch`); volumes and environments are then built without further requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from kubeletx.api import ClusterVolume, ObjectData, TokenParameters, Unavailable
from kubeletx.api.names import Event

K = TypeVar("K")
T = TypeVar("T")


class Unread(Unavailable):
    """Placeholder in an `ObjectSet` for an object that could not be read; `read` raises it.

    Files of a volume that were written from the object earlier are then kept.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, reason=Event.FAILED_MOUNT)


class ObjectSet(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the pod's namespace, by name, from which volumes or an environment are built.

    An object without an entry does not exist in the cluster; `Unread` means that reading it failed. `tokens`: service
    account tokens, by audience and lifetime. `claims`: the volume that a PersistentVolumeClaim is bound to, by claim
    name. The repr shows no content.
    """

    config_maps: Mapping[str, ObjectData | Unread] = {}
    secrets: Mapping[str, ObjectData | Unread] = {}
    tokens: Mapping[TokenParameters, bytes | Unread] = {}
    claims: Mapping[str, ClusterVolume | Unread] = {}

    def __repr__(self) -> str:
        return f"ObjectSet({sorted(self.config_maps)}, {sorted(self.secrets)}, tokens={len(self.tokens)})"


def read(found: Mapping[K, T | Unread], key: K) -> T | None:
    """Return the object with this key from a field of an `ObjectSet`; None if it does not exist in the cluster.

    Raises `Unread` if the object could not be fetched.
    """
    one = found.get(key)
    if isinstance(one, Unread):
        raise one
    return one
