"""`FollowedObjects`: config maps and secrets, each with a watch of its own while a pod of this node refers to it.

    pod follows ─► first user: list and watch metadata.name=NAME ─► content changed: `tell` is called for each user
    pod leaves  ─► last user gone: the watch ends and the content is forgotten

The Node authorizer lets a node read only these objects, never a whole namespace. Immutable objects are read once.
While the API server is unreachable the content stays as last seen. Source: kubelet, pkg/kubelet/util/manager.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence

import msgspec
import structlog

from kubeletx.api import Clock, NotFound, ObjectData, ObjectUser, PodUid, Unavailable
from kubeletx.kube.client import KubeClient, Reflector, Resource
from kubeletx.kube.client.resources import CONFIG_MAPS, SECRETS
from kubeletx.kube.manifests.objects import data_of
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import ConfigMap, Secret

log = structlog.get_logger(__name__)

WAIT_SECONDS = 5.0
"""Longest wait in seconds for the API server's first answer about an object."""

LISTS_AT_ONCE = 8
"""Limit of concurrent list requests.

After a restart all pods need their objects at once, and each new connection takes much memory while it is busy.
"""

Content = ConfigMap | Secret


class FollowedKind(enum.Enum):
    """Kind of a watched object: config map or secret. The value is the word in the kubelet's messages."""

    CONFIG_MAP = "configmap"
    SECRET = "secret"

    @property
    def resource(self) -> Resource:
        """API resource of the kind."""
        return CONFIG_MAPS if self is FollowedKind.CONFIG_MAP else SECRETS

    @property
    def type(self) -> type[Content]:
        return ConfigMap if self is FollowedKind.CONFIG_MAP else Secret


class ObjectKey(msgspec.Struct, frozen=True):
    """Kind, namespace and name of a config map or secret."""

    kind: FollowedKind
    namespace: str
    name: str

    def __str__(self) -> str:
        return f'{self.kind.value} "{self.namespace}/{self.name}"'


class _Followed:
    """One watched object, its last content and the pods that use it.

    Implements `ReflectorSink` for at most one item.
    """

    def __init__(self, key: ObjectKey, tell: Callable[[PodUid], None]) -> None:
        self.key = key
        self.users: set[PodUid] = set()
        self.data: ObjectData | None = None
        self.known = asyncio.Event()
        self.is_final = False
        self.is_missed = False
        """True if a caller timed out while it waited for the object's first state."""
        self.reflector: Reflector[Content] | None = None
        self._task: asyncio.Task[None] | None = None
        self._tell = tell

    def begin(self, group: asyncio.TaskGroup, reflector: Reflector[Content]) -> None:
        """Start a task in `group` that watches the object."""
        self.reflector = reflector
        self._task = group.create_task(reflector.run(), name=f"api-follow {self.key}")

    def end(self) -> None:
        """Cancel the task that watches the object."""
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def replace(self, items: Sequence[Content], unreadable: Sequence[ObjectMeta]) -> None:
        if not unreadable:
            self._see(items[0] if items else None)

    def put(self, item: Content) -> None:
        self._see(item)

    def drop(self, item: Content) -> None:
        self._see(None)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Keep the content that was last seen."""

    def _see(self, item: Content | None) -> None:
        data = None if item is None else data_of(item)
        is_news = self.is_missed or (self.known.is_set() and data != self.data)
        self.data, self.is_missed = data, False
        self.known.set()
        if item is not None and item.immutable:
            self.is_final = True
            self.end()
        if is_news:
            log.debug("Object of a pod changed", object=str(self.key), users=len(self.users))
            for uid in list(self.users):
                self._tell(uid)


class FollowedObjects:
    """Watches each config map and secret that a pod of this node refers to."""

    def __init__(
        self,
        client: KubeClient,
        tell: Callable[[PodUid], None],
        *,
        clock: Clock,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        """`tell`: called with the UID of each pod that refers to an object, when that object has changed."""
        self._client = client
        self._tell = tell
        self._clock = clock
        self._wait_seconds = wait_seconds
        self._followed: dict[ObjectKey, _Followed] = {}
        self._group: asyncio.TaskGroup | None = None
        self._turns = asyncio.Semaphore(LISTS_AT_ONCE)

    @property
    def keys(self) -> frozenset[ObjectKey]:
        return frozenset(self._followed)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            self._group = group
            try:
                for followed in self._followed.values():
                    self._begin(followed)
                await asyncio.Event().wait()
            finally:
                self._group = None

    def follow(self, user: ObjectUser) -> None:
        """Watch the objects that the pod refers to now, and drop the objects that only it referred to before."""
        wanted = {ObjectKey(FollowedKind.CONFIG_MAP, user.namespace, name) for name in user.config_maps}
        wanted |= {ObjectKey(FollowedKind.SECRET, user.namespace, name) for name in user.secrets}
        for key in wanted:
            followed = self._followed.get(key)
            if followed is None:
                followed = self._followed[key] = _Followed(key, self._tell)
                self._begin(followed)
            followed.users.add(user.uid)
        self._drop(user.uid, but=wanted)

    def leave(self, uid: PodUid) -> None:
        """End the watches that only this pod needed."""
        self._drop(uid, but=set())

    async def find(self, kind: FollowedKind, namespace: str, name: str) -> ObjectData | None:
        """Return the object as last seen by its watch; None if it does not exist.

        An object that is not watched is read from the API server. Raises Unavailable if the API server does not
        answer.
        """
        key = ObjectKey(kind, namespace, name)
        followed = self._followed.get(key)
        if followed is None:
            return await self._read(key)
        try:
            async with asyncio.timeout(self._wait_seconds):
                await followed.known.wait()
        except TimeoutError as error:
            followed.is_missed = True
            problem = followed.reflector.problem if followed.reflector is not None else ""
            raise Unavailable(f"{key} cannot be read: {problem or 'no answer yet'}") from error
        return followed.data

    async def _read(self, key: ObjectKey) -> ObjectData | None:
        path = key.kind.resource.path(key.namespace, key.name)
        try:
            return data_of(await self._client.get(path, key.kind.type))
        except NotFound:
            return None

    def _begin(self, followed: _Followed) -> None:
        if self._group is None or followed.is_final:
            return
        reflector: Reflector[Content] = Reflector(
            self._client,
            followed.key.kind.resource,
            followed.key.kind.type,
            followed,
            clock=self._clock,
            namespace=followed.key.namespace,
            field_selector=f"metadata.name={followed.key.name}",
            turns=self._turns,
        )
        followed.begin(self._group, reflector)

    def _drop(self, uid: PodUid, *, but: set[ObjectKey]) -> None:
        for key, followed in list(self._followed.items()):
            if uid in followed.users and key not in but:
                followed.users.discard(uid)
                if not followed.users:
                    followed.end()
                    del self._followed[key]
