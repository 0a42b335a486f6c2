"""`CoreObjects`: the config maps and secrets that came with pods of a core, for these pods.

A core sends the objects of a pod together with the pod. Objects are known by namespace and name, as in a cluster: a
later pod that brings an object of the same name replaces it for all pods of the namespace, and the volumes of running
pods are written again. An object is forgotten with the last pod that brought it. After a restart of the agent it is the
one of the newest pod that still exists.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

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
        self._users: dict[PodUid, ObjectUser] = {}
        self._listeners: list[Callable[[PodUid], None]] = []

    def subscribe(self, listener: Callable[[PodUid], None]) -> None:
        """Call `listener` with the UID of each pod whose volumes or variables use an object that has changed."""
        self._listeners.append(listener)

    def put(self, pod: Pod, objects: Mapping[tuple[str, str], ObjectData]) -> None:
        """Make the objects of a pod readable until `drop`."""
        keys, changed = self._of_pod.setdefault(pod.uid, set()), set()
        for (kind, name), data in objects.items():
            key = (kind, pod.namespace, name)
            if self._objects.get(key) != data:
                self._objects[key] = data
                changed.add(key)
            self._brought.setdefault(key, set()).add(pod.uid)
            keys.add(key)
        for user in tuple(self._users.values()):
            if changed & _keys_of(user):
                for listener in self._listeners:
                    listener(user.uid)

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
        self._users[pod.uid] = pod

    def leave(self, uid: PodUid) -> None:
        self._users.pop(uid, None)

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        return self._objects.get(("ConfigMap", namespace, name))

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        return self._objects.get(("Secret", namespace, name))

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        raise Unsupported(
            f"audience {wanted.audience!r}: pods of a FornaxCore have no service account tokens; remove the volume"
        )

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


def _keys_of(user: ObjectUser) -> frozenset[_Key]:
    return frozenset(
        (kind, user.namespace, name)
        for kind, named in (("ConfigMap", user.config_maps), ("Secret", user.secrets))
        for name in named
    )
