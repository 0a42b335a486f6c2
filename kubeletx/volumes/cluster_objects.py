"""Objects of the cluster as volumes and environment variables read them: fetched before, then only looked up."""

from __future__ import annotations

import msgspec

from kubeletx.api import ClusterVolume, ObjectData, TokenWish


class ObjectSet(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the pod's namespace that were fetched before a pure translation needs them.

    A name that is absent does not exist. `claims`: by claim name. Tokens are not shown.
    """

    config_maps: dict[str, ObjectData] = {}
    secrets: dict[str, ObjectData] = {}
    tokens: dict[TokenWish, bytes] = {}
    claims: dict[str, ClusterVolume] = {}

    def __repr__(self) -> str:
        return f"ObjectSet({sorted(self.config_maps)}, {sorted(self.secrets)}, tokens={len(self.tokens)})"
