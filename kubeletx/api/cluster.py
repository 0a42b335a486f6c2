"""`ClusterObjects`: access to the API objects that a pod refers to, such as config maps, secrets and claims.

The pod source for a cluster's API server implements it. Other sources (manifest files, `kubeletx apply`) have none: a
reference of their pods to an object is refused, unless the reference is optional.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from .identity import PodUid


class ObjectData(msgspec.Struct, frozen=True, kw_only=True):
    """Content of one config map or secret. The repr shows only the keys, not the values.

    `text`: ``data`` of a config map; empty for a secret. `binary`: ``binaryData`` of a config map, or ``data``
    of a secret, decoded from base64. `uid`: UID of the object. `type`: type of a secret; empty for a config map.
    """

    text: dict[str, str] = {}
    binary: dict[str, bytes] = {}
    uid: str = ""
    type: str = ""

    def __repr__(self) -> str:
        return f"ObjectData(keys={sorted(self.as_bytes())})"

    def as_bytes(self) -> dict[str, bytes]:
        """Return `text` and `binary` in one dict: key to content. Values of `text` are encoded as UTF-8."""
        return {key: value.encode() for key, value in self.text.items()} | self.binary


class ObjectUser(msgspec.Struct, frozen=True, kw_only=True):
    """Pod, and the names of the objects in its namespace that it refers to.

    `own_claims`: names of the claims of its generic ephemeral volumes, which the cluster creates for this pod.
    If a claim with such a name has another owner, the pod must not use it.
    """

    uid: PodUid
    name: str
    namespace: str
    service_account: str = "default"
    config_maps: frozenset[str] = frozenset()
    secrets: frozenset[str] = frozenset()
    own_claims: frozenset[str] = frozenset()


class TokenParameters(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a requested service account token. `audience` empty: the API server's default audience."""

    audience: str = ""
    expiration_seconds: int = 3600


class ClusterService(msgspec.Struct, frozen=True, kw_only=True):
    """Service that has a cluster IP. `address`: its cluster IP. `ports`: (name, number, protocol), in spec order."""

    name: str
    namespace: str
    address: str
    ports: tuple[tuple[str, int, str], ...] = ()


class ClusterServiceAccount(msgspec.Struct, frozen=True, kw_only=True):
    """UID and annotations of a service account. Its tokens are returned by `ClusterObjects.token`."""

    uid: str
    annotations: dict[str, str] = {}


class ClusterVolume(msgspec.Struct, frozen=True, kw_only=True):
    """Persistent volume that a claim is bound to.

    `kind`: field of its spec that describes the volume, such as local, nfs or flexVolume; empty: unknown. `path`: path
    on the node, or on the NFS server `server`. `is_block`: the volume is a raw device, not a file system.
    `check`: ``type`` of a hostPath, such as DirectoryOrCreate. `is_here` False: the volume's node affinity
    excludes this node.
    """

    name: str
    kind: str
    path: str = ""
    server: str = ""
    read_only: bool = False
    is_block: bool = False
    check: str = ""
    mount_options: tuple[str, ...] = ()
    fs_type: str = ""
    """File system of a local volume's block device; empty: any, and ext4 for a new one."""
    is_here: bool = True
    uid: str = ""
    claim: str = ""
    """Name of the claim, in the pod's namespace."""
    source: dict[str, Any] = {}
    """Fields of a source that a volume driver serves, as JSON values; empty for local, hostPath and nfs."""
    access_modes: tuple[str, ...] = ()
    capacity_bytes: int = 0
    """Size of the volume; 0: unknown."""
    claim_bytes: int = 0
    """Size in the status of the claim; 0: unknown. Less than `capacity_bytes`: the file system must be expanded."""


class ClusterObjects(Protocol):
    """Reads the API objects that pods of one source refer to.

    Call `follow` for a pod first: only objects that a followed pod refers to can be read. Methods raise
    Unavailable if an object cannot be read now. Config maps, secrets, services and volumes that were read
    before are returned as last seen while the API server does not answer.
    """

    def follow(self, pod: ObjectUser) -> None:
        """Follow a pod: make the objects that it refers to readable, and keep them up to date.

        Call it again with the new names when the pod's references change.
        """
        ...

    def leave(self, uid: PodUid) -> None:
        """Stop following the pod with this UID. Does nothing if it is not followed."""
        ...

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        """Return the config map; None if it does not exist. Raises Unavailable if it cannot be read."""
        ...

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        """Return the secret; None if it does not exist. Raises Unavailable if it cannot be read."""
        ...

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        """Return a token of the followed pod's service account that is bound to the pod.

        Tokens are cached and renewed before they expire. Raises Unavailable if there is no valid token and none
        can be requested.
        """
        ...

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        """Read the service account of a followed pod; None if it does not exist."""
        ...

    async def list_services(self, namespace: str) -> tuple[ClusterService, ...]:
        """List the services of the namespace that have a cluster IP."""
        ...

    async def find_volume(self, uid: PodUid, claim: str) -> ClusterVolume | None:
        """Return the volume that the claim named `claim` of the followed pod `uid` is bound to.

        None: the claim does not exist. Raises Unavailable while the claim is not bound, or if it is one of
        `ObjectUser.own_claims` and has another owner. In all these cases the pod's volumes are prepared again
        once the claim can be used.
        """
        ...

    async def find_volume_secret(self, uid: PodUid, namespace: str, name: str) -> ObjectData | None:
        """Read a secret for a volume of the followed pod `uid`, in any namespace; None if it does not exist.

        Each call reads it from the cluster. Raises Unavailable if it cannot be read now.
        """
        ...

    async def note_expanded(self, uid: PodUid, claim: str, size_bytes: int) -> None:
        """Write to the status of the claim that its file system now has `size_bytes`.

        Raises Unavailable if it cannot be written now; does nothing if the claim does not exist any more.
        """
        ...
