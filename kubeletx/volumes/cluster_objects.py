"""Cluster objects that volumes and environment variables need: fetched first, then only looked up in an
`ObjectSet`.
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
    """Placeholder in an `ObjectSet` for an object that could not be read, and the error that `read` raises
    for it. Files written from the object earlier are kept.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, reason=Event.FAILED_MOUNT)


class ObjectSet(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the pod's namespace, fetched before the volumes and the environment are built from them.

    A name without an entry does not exist in the cluster; `Unread` means that reading it failed. `claims`:
    the bound volume, by claim name. The repr shows no content.
    """

    config_maps: Mapping[str, ObjectData | Unread] = {}
    secrets: Mapping[str, ObjectData | Unread] = {}
    tokens: Mapping[TokenParameters, bytes | Unread] = {}
    claims: Mapping[str, ClusterVolume | Unread] = {}

    def __repr__(self) -> str:
        return f"ObjectSet({sorted(self.config_maps)}, {sorted(self.secrets)}, tokens={len(self.tokens)})"


def read(found: Mapping[K, T | Unread], key: K) -> T | None:
    """Return the object of this key; None if it does not exist in the cluster.

    Raises `Unread` if reading it had failed.
    """
    one = found.get(key)
    if isinstance(one, Unread):
        raise one
    return one
