"""Objects of the cluster for volumes and environment variables: fetched before, then only looked up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from kubeletx.api import ClusterVolume, ObjectData, TokenParameters, Unavailable
from kubeletx.api.names import Event

K = TypeVar("K")
T = TypeVar("T")


class Unread(Unavailable):
    """The object could not be read. Files that were written from it before are kept."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason=Event.FAILED_MOUNT)


class ObjectSet(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the pod's namespace that were fetched before a pure translation needs them.

    An absent name does not exist in the cluster. `claims`: by claim name. Tokens are hidden from the repr.
    """

    config_maps: Mapping[str, ObjectData | Unread] = {}
    secrets: Mapping[str, ObjectData | Unread] = {}
    tokens: Mapping[TokenParameters, bytes | Unread] = {}
    claims: Mapping[str, ClusterVolume | Unread] = {}

    def __repr__(self) -> str:
        return f"ObjectSet({sorted(self.config_maps)}, {sorted(self.secrets)}, tokens={len(self.tokens)})"


def read(found: Mapping[K, T | Unread], key: K) -> T | None:
    """The object; None if it does not exist. Raises Unread."""
    one = found.get(key)
    if isinstance(one, Unread):
        raise one
    return one
