"""`CoreObjects`: the config maps and secrets that came with pods of a core, for these pods.

A core sends the objects of a pod together with the pod. Objects are known by namespace and name, as in a cluster: a
later pod that brings an object of the same name replaces it for all pods of the namespace. An object is forgotten with
the last pod that brought it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from kubeletx.api import (
    ClusterService,
    ClusterServiceAccount,
    ClusterVolume,
    InvalidPod,
    ObjectData,
    ObjectUser,
    PodUid,
    TokenParameters,
    Unsupported,
)
from kubeletx.kube.types.core import Pod

from ..convert import config_map_data, secret_data
from ..stubs import fornaxcore_pb2 as pb
from .prepare import required_objects

_Key = tuple[str, str, str]
"""Kind, namespace and name of an object."""


def objects_of(create: pb.PodCreate) -> dict[tuple[str, str], ObjectData]:
    """Return the objects of a PodCreate by kind and name; a core sends an empty config map if the pod has none.

    Raises InvalidPod for an object that cannot be decoded.
    """
    found = {}
    for config_map in (create.configMap, *create.configMaps):
        if name := config_map.metadata.name:
            found["ConfigMap", name] = config_map_data(config_map)
    for secret in create.secrets:
        if name := secret.metadata.name:
            found["Secret", name] = secret_data(secret)
    return found


def check_objects(pod: Pod, objects: Container[tuple[str, str]]) -> None:
    """Raise InvalidPod if a config map or secret that the pod's volumes need did not come with the pod."""
    for kind, name in required_objects(pod):
        if (kind, name) not in objects:
            raise InvalidPod(
                obj=pod.ref,
                field="spec.volumes",
                problem=f"needs {kind} {name!r}, which did not come with the pod",
                fix="send it in PodCreate, or mark it optional",
            )


class CoreObjects:
    """Config maps and secrets of the pods of cores. Implements `kubeletx.api.ClusterObjects`."""

    def __init__(self) -> None:
        self._objects: dict[_Key, ObjectData] = {}
        self._brought: dict[_Key, set[PodUid]] = {}
        self._of_pod: dict[PodUid, set[_Key]] = {}

    def put(self, pod: Pod, objects: Mapping[tuple[str, str], ObjectData]) -> None:
        """Make the objects of a pod readable until `drop`."""
        keys = self._of_pod.setdefault(pod.uid, set())
        for (kind, name), data in objects.items():
            key = (kind, pod.namespace, name)
            self._objects[key] = data
            self._brought.setdefault(key, set()).add(pod.uid)
            keys.add(key)

    def drop(self, uid: PodUid) -> None:
        """Forget the objects that no other pod has brought."""
        for key in self._of_pod.pop(uid, ()):
            users = self._brought[key]
            users.discard(uid)
            if not users:
                del self._brought[key], self._objects[key]

    def __len__(self) -> int:
        return len(self._objects)

    # --- ClusterObjects ---

    def follow(self, pod: ObjectUser) -> None:
        """Do nothing: the objects are already here."""

    def leave(self, uid: PodUid) -> None:
        """Do nothing: the objects are dropped with the pod."""

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        return self._objects.get(("ConfigMap", namespace, name))

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        return self._objects.get(("Secret", namespace, name))

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        raise Unsupported("a FornaxCore has no service account tokens")

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        return None

    async def list_services(self, namespace: str) -> tuple[ClusterService, ...]:
        return ()

    async def find_volume(self, uid: PodUid, claim: str) -> ClusterVolume | None:
        return None

    async def find_volume_secret(self, uid: PodUid, namespace: str, name: str) -> ObjectData | None:
        return await self.find_secret(namespace, name)

    async def note_expanded(self, uid: PodUid, claim: str, size_bytes: int) -> None:
        """Do nothing: there are no claims."""
