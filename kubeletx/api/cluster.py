"""Objects of the cluster that a pod refers to: `ClusterObjects`, implemented by the source of the pod.

A source without a cluster (manifests, applied pods) gives None instead; a reference to an object is then refused,
unless it is optional.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from .identity import PodUid


class ObjectData(msgspec.Struct, frozen=True, kw_only=True):
    """Content of one config map or secret. The repr shows only the keys. A secret has `binary` only.

    `uid`: of the object; empty if the source of the pod has no such objects.
    """

    text: dict[str, str] = {}
    binary: dict[str, bytes] = {}
    uid: str = ""

    def __repr__(self) -> str:
        return f"ObjectData(keys={sorted(self.as_bytes())})"

    def as_bytes(self) -> dict[str, bytes]:
        """Return every key with its content; text is encoded as UTF-8."""
        return {key: value.encode() for key, value in self.text.items()} | self.binary


class ObjectUser(msgspec.Struct, frozen=True, kw_only=True):
    """A pod, and the names of all objects of its namespace that it refers to.

    `own_claims`: claims that the cluster makes for this pod alone. If a claim of such a name was made
    otherwise, the pod must not use it.
    """

    uid: PodUid
    name: str
    namespace: str
    service_account: str = "default"
    config_maps: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    own_claims: frozenset[str] = frozenset()


class TokenParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of a token for a pod's service account. `audience` empty: the API server's own audience."""

    audience: str = ""
    expiration_seconds: int = 3600


class ClusterService(msgspec.Struct, frozen=True, kw_only=True):
    """Service with an address of its own. `ports`: (name, number, protocol), in spec order."""

    name: str
    namespace: str
    address: str
    ports: tuple[tuple[str, int, str], ...] = ()


class ClusterServiceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """Service account of the cluster, without its tokens."""

    uid: str
    annotations: dict[str, str] = {}


class ClusterVolume(msgspec.Struct, frozen=True, kw_only=True):
    """Persistent volume that a claim is bound to. `kind`: local, hostPath or nfs.

    `is_block`: the volume is a raw device, not a file system. `check`: the type of a hostPath. `is_here`
    False: the volume's node affinity excludes this node.
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
    """Reads objects of the cluster for the pods of one source. Only objects that a followed pod refers to can be read.

    Methods raise Unavailable if an object cannot be read. An object that was read before is returned as last
    seen.
    """

    def follow(self, pod: ObjectUser) -> None:
        """Start to read the objects that a pod refers to. Call it again when the pod refers to others."""
        ...

    def leave(self, uid: PodUid) -> None:
        """Stop to read objects for this pod. Unknown UIDs are ignored."""
        ...

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        """Return the config map; None if it does not exist. Raises Unavailable if it cannot be read."""
        ...

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        """Return the secret; None if it does not exist. Raises Unavailable if it cannot be read."""
        ...

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        """Return a token of the followed pod's service account, bound to the pod, with most of its lifetime left."""
        ...

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        """Read the service account of a followed pod; None if it does not exist."""
        ...

    async def list_services(self, namespace: str) -> tuple[ClusterService, ...]:
        """List the services of the namespace that have an address of their own."""
        ...

    async def find_volume(self, uid: PodUid, claim: str) -> ClusterVolume | None:
        """Return the volume that a followed pod's claim is bound to; None if the claim does not exist.

        Raises Unavailable while the claim is not bound; the host is notified once it is.
        """
        ...
