"""Objects of the cluster that a pod refers to: `ClusterObjects`, implemented by the source of the pod.

A source without a cluster (manifests, applied pods) gives None instead; a reference to an object is then refused,
unless it is optional.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from .identity import PodUid


class ObjectData(msgspec.Struct, frozen=True, kw_only=True):
    """Content of one config map or secret. Secrets have `binary` only; never printed.

    `uid`: of the object; empty if its source has none.
    """

    text: dict[str, str] = {}
    binary: dict[str, bytes] = {}
    uid: str = ""

    def __repr__(self) -> str:
        return f"ObjectData(keys={sorted(self.as_bytes())})"

    def as_bytes(self) -> dict[str, bytes]:
        """Every key with its content; text is UTF-8."""
        return {key: value.encode() for key, value in self.text.items()} | self.binary


class ObjectUser(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and the names of all config maps and secrets of its namespace that it refers to.

    `own_claims`: claims that the cluster makes for this pod; an existing claim of that name made otherwise is not the
    pod's.
    """

    uid: PodUid
    name: str
    namespace: str
    service_account: str = "default"
    config_maps: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    own_claims: frozenset[str] = frozenset()


class TokenParameters(msgspec.Struct, frozen=True, kw_only=True):
    """A token of a pod's service account. `audience` empty: the API server's own."""

    audience: str = ""
    expiration_seconds: int = 3600


class ClusterService(msgspec.Struct, frozen=True, kw_only=True):
    """A service with an address of its own. `ports`: (name, number, protocol), in spec order."""

    name: str
    namespace: str
    address: str
    ports: tuple[tuple[str, int, str], ...] = ()


class ClusterServiceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """A service account, without its tokens."""

    uid: str
    annotations: dict[str, str] = {}


class ClusterVolume(msgspec.Struct, frozen=True, kw_only=True):
    """The persistent volume that a claim is bound to. `kind`: local, hostPath or nfs.

    `is_block`: a raw device rather than a file system. `check`: the type of a hostPath. `is_here` False: the volume's
    node affinity excludes this node.
    """

    name: str
    kind: str
    path: str
    server: str = ""
    read_only: bool = False
    is_block: bool = False
    check: str = ""
    mount_options: tuple[str, ...] = ()
    is_here: bool = True


class ClusterObjects(Protocol):
    """Cluster objects for the pods of one source. Follow a pod first: only objects it refers to may be read.

    Raises Unavailable if an object cannot be read; objects read before are returned as last seen.
    """

    def follow(self, pod: ObjectUser) -> None:
        """Announce a pod and the objects it refers to; call again when they change."""
        ...

    def leave(self, uid: PodUid) -> None:
        """Note that the pod needs nothing any more; unknown UIDs are ignored."""
        ...

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        """Return the config map; None if it does not exist. Raises Unavailable if it cannot be read."""
        ...

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        """Return the secret; None if it does not exist. Raises Unavailable if it cannot be read."""
        ...

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        """A token of the followed pod's service account, bound to the pod, with most of its life left."""
        ...

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        """Read the service account of a followed pod; None if it does not exist."""
        ...

    async def list_services(self, namespace: str) -> tuple[ClusterService, ...]:
        """Services of the namespace that have an address."""
        ...

    async def find_volume(self, uid: PodUid, claim: str) -> ClusterVolume | None:
        """The volume of a followed pod's claim; None if the claim does not exist.

        Raises Unavailable while it is not bound; the pod is notified when it is.
        """
        ...
