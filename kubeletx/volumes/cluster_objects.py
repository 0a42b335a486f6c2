"""Config maps and secrets as volumes and environment variables read them.

`ClusterObjects` is implemented by the pod's source (the API server) and injected. Static pods have none:
whatever refers to an object is then refused in words, unless it is marked optional.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class ObjectData(msgspec.Struct, frozen=True, kw_only=True):
    """Content of one config map or secret. Secrets hold `binary` only; never printed."""

    text: dict[str, str] = {}
    binary: dict[str, bytes] = {}

    def __repr__(self) -> str:
        return f"ObjectData(keys={sorted(self.as_bytes())})"

    def as_bytes(self) -> dict[str, bytes]:
        """Every key with its content; text is UTF-8."""
        return {key: value.encode() for key, value in self.text.items()} | self.binary


class ClusterObjects(Protocol):
    """Objects of the cluster that a pod refers to."""

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        """The config map, or None when it does not exist. Raises Unavailable when nobody can tell."""
        ...

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        """The secret, or None when it does not exist. Raises Unavailable when nobody can tell."""
        ...


class ObjectSet(msgspec.Struct, frozen=True, kw_only=True):
    """Objects of the pod's namespace that were fetched before a pure translation needs them.

    A name that is absent does not exist.
    """

    config_maps: dict[str, ObjectData] = {}
    secrets: dict[str, ObjectData] = {}
