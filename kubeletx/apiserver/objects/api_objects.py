"""`ApiObjects`: reads the API objects that pods refer to, with the node's own rights.

| what                    | how                                          | file                  |
|-------------------------|----------------------------------------------|-----------------------|
| config maps, secrets    | a watch for each, while a pod refers to it   | `followed.py`         |
| service account tokens  | requested, bound to the pod, renewed         | `tokens.py`           |
| service accounts        | read when a credential provider needs them   |                       |
| services                | one watch of all                             | `ServiceSink`         |
| claims and volumes      | read when a pod's volumes are made ready     | `volumes.py`          |
| secrets of volumes      | read when a volume driver needs one          |                       |
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from kubeletx.api import (
    Clock,
    ClusterService,
    ClusterServiceAccount,
    ClusterVolume,
    KubeletxError,
    NotFound,
    ObjectData,
    ObjectUser,
    PodUid,
    TokenParameters,
    Unavailable,
)
from kubeletx.kube.client import KubeClient, Reflector
from kubeletx.kube.client.resources import SECRETS, SERVICE_ACCOUNTS, SERVICES
from kubeletx.kube.manifests.objects import data_of
from kubeletx.kube.types.meta import ObjectMeta
from kubeletx.kube.types.objects import Secret, Service, ServiceAccount

from .followed import FollowedKind, FollowedObjects
from .tokens import PodTokens
from .volumes import FIRST_SECONDS, ClaimedVolumes

WAIT_SECONDS = 5.0


class ApiObjects:
    """Reads the API objects that pods refer to.

    Implements `kubeletx.api.ClusterObjects`. `run` keeps the watches open.
    """

    def __init__(
        self,
        client: KubeClient,
        node_name: str,
        *,
        clock: Clock,
        wait_seconds: float = WAIT_SECONDS,
        claim_seconds: float = FIRST_SECONDS,
    ) -> None:
        """`wait_seconds`: longest wait for the first answer about an object.

        `claim_seconds`: first interval between two looks at a claim that is not usable.
        """
        self.node_labels: Mapping[str, str] = {}
        """Labels of the Node in the API server, against which the node affinity of volumes is checked."""
        self._client = client
        self._users: dict[PodUid, ObjectUser] = {}
        self._listeners: list[Callable[[PodUid], None]] = []
        self._followed = FollowedObjects(client, self._tell, clock=clock, wait_seconds=wait_seconds)
        self._tokens = PodTokens(client, self._tell, clock=clock)
        self._volumes = ClaimedVolumes(
            client,
            self._tell,
            lambda: (node_name, self.node_labels),
            clock=clock,
            first_seconds=claim_seconds,
        )
        self._services = ServiceSink()
        self._service_watch = Reflector(client, SERVICES, Service, self._services, clock=clock)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._followed.run(), name="api-followed")
            group.create_task(self._service_watch.run(), name="api-services")
            group.create_task(self._volumes.run(), name="api-claims")

    def subscribe(self, listener: Callable[[PodUid], None]) -> None:
        """Call the listener with the UID of every pod whose objects changed or whose token is due for renewal."""
        self._listeners.append(listener)

    # --- ClusterObjects ---

    def follow(self, pod: ObjectUser) -> None:
        self._users[pod.uid] = pod
        self._followed.follow(pod)

    def leave(self, uid: PodUid) -> None:
        if self._users.pop(uid, None) is not None:
            self._followed.leave(uid)
            self._tokens.leave(uid)
            self._volumes.leave(uid)

    async def find_config_map(self, namespace: str, name: str) -> ObjectData | None:
        return await self._followed.find(FollowedKind.CONFIG_MAP, namespace, name)

    async def find_secret(self, namespace: str, name: str) -> ObjectData | None:
        return await self._followed.find(FollowedKind.SECRET, namespace, name)

    async def token(self, uid: PodUid, wanted: TokenParameters) -> bytes:
        return await self._tokens.token(self._user(uid), wanted)

    async def find_service_account(self, namespace: str, name: str) -> ClusterServiceAccount | None:
        try:
            account = await self._client.get(SERVICE_ACCOUNTS.path(namespace, name), ServiceAccount)
        except NotFound:
            return None
        return ClusterServiceAccount(uid=str(account.metadata.uid), annotations=account.metadata.annotations)

    async def list_services(self, namespace: str) -> tuple[ClusterService, ...]:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._service_watch.synced.wait()
        except TimeoutError as error:
            problem = self._service_watch.problem
            text = "services have not yet been read at least once, cannot construct envvars"
            raise Unavailable(f"{text}: {problem}" if problem else text) from error
        return self._services.of(namespace)

    async def find_volume(self, uid: PodUid, claim: str) -> ClusterVolume | None:
        return await self._volumes.find(self._user(uid), claim)

    async def find_volume_secret(self, uid: PodUid, namespace: str, name: str) -> ObjectData | None:
        self._user(uid)
        try:
            return data_of(await self._client.get(SECRETS.path(namespace, name), Secret))
        except NotFound:
            return None
        except (
            KubeletxError
        ) as error:  # also PermissionDenied of the Node authorizer, which may not know the pod yet
            raise Unavailable(f'secret "{namespace}/{name}": {error}') from error

    async def note_expanded(self, uid: PodUid, claim: str, size_bytes: int) -> None:
        await self._volumes.note_expanded(self._user(uid), claim, size_bytes)

    def _user(self, uid: PodUid) -> ObjectUser:
        user = self._users.get(uid)
        if user is None:
            raise Unavailable(f"pod {uid} is not here any more")
        return user

    def _tell(self, uid: PodUid) -> None:
        for listener in self._listeners:
            listener(uid)


class ServiceSink:
    """Keeps the services that have a cluster IP, by namespace and name. Implements `ReflectorSink` of services."""

    def __init__(self) -> None:
        self._services: defaultdict[str, dict[str, ClusterService]] = defaultdict(dict)

    def of(self, namespace: str) -> tuple[ClusterService, ...]:
        """Return the services of one namespace, sorted by name."""
        services = self._services.get(namespace, {})
        return tuple(services[name] for name in sorted(services))

    def replace(self, items: Sequence[Service], unreadable: Sequence[ObjectMeta]) -> None:
        """Replace all services. A service that cannot be decoded stays as it was."""
        before, self._services = self._services, defaultdict(dict)
        for meta in unreadable:
            if (known := before[meta.namespace].get(meta.name)) is not None:
                self._services[meta.namespace][meta.name] = known
        for item in items:
            self.put(item)

    def put(self, item: Service) -> None:
        """Add or replace the service; one without a cluster IP is removed."""
        spec, meta = item.spec, item.metadata
        if spec.cluster_ip in ("", "None"):
            self.drop(item)
            return
        self._services[meta.namespace][meta.name] = ClusterService(
            name=meta.name,
            namespace=meta.namespace,
            address=spec.cluster_ip,
            ports=tuple((port.name, port.port, port.protocol or "TCP") for port in spec.ports),
        )

    def drop(self, item: Service) -> None:
        there = self._services.get(item.metadata.namespace, {})
        there.pop(item.metadata.name, None)
        if not there:
            self._services.pop(item.metadata.namespace, None)

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Keep the service as it was last decoded."""
