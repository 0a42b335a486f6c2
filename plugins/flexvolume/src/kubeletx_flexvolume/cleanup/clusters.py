"""`ClusterWatch`: follows the objects of storage clusters, of one or several custom resources.

    deletionTimestamp is set           ──► DELETING
    the object has gone without it     ──► GONE: its finalizers were removed by hand
    it exists, and is not being deleted ─► ALIVE

A storage cluster is known by NAMESPACE/NAME, as volumes name it.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Sequence

import msgspec

from kubeletx.api import Clock
from kubeletx.kube.client import KubeClient, Reflector, Resource
from kubeletx.kube.types.custom import CustomObject
from kubeletx.kube.types.meta import ObjectMeta, ObjectReference


class ClusterState(enum.Enum):
    """State of a storage cluster."""

    ALIVE = "alive"
    DELETING = "deleting"
    GONE = "gone"


class StorageCluster(msgspec.Struct, frozen=True, kw_only=True):
    """One storage cluster as it was last seen. `resource`: custom resource that it is an object of."""

    resource: Resource
    subject: ObjectReference
    state: ClusterState
    finalizers: tuple[str, ...] = ()
    version: str = ""

    @property
    def key(self) -> str:
        """NAMESPACE/NAME, as `StorageVolume.cluster` has it."""
        return f"{self.subject.namespace}/{self.subject.name}"


OnCluster = Callable[[StorageCluster], None]


class ClusterWatch:
    """Watches storage clusters. `clusters`: the existing ones, by resource and key."""

    def __init__(
        self, client: KubeClient, resources: Sequence[Resource], clock: Clock, on_change: OnCluster
    ) -> None:
        """`on_change`: called on the event loop for each cluster that appears, changes or goes; must not block."""
        self.clusters: dict[tuple[Resource, str], StorageCluster] = {}
        self.changed = asyncio.Event()
        self._on_change = on_change
        self._reflectors = [
            Reflector(client, resource, CustomObject, _ClusterSink(self, resource), clock=clock)
            for resource in resources
        ]

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number, one in enumerate(self._reflectors):
                group.create_task(one.run(), name=f"storage clusters {number}")

    @property
    def is_synced(self) -> bool:
        """True once all clusters have been listed."""
        return all(reflector.synced.is_set() for reflector in self._reflectors)

    async def synced(self) -> None:
        for reflector in self._reflectors:
            await reflector.synced.wait()

    def seen(self, cluster: StorageCluster) -> None:
        known = (cluster.resource, cluster.key)
        if cluster.state is ClusterState.GONE:
            self.clusters.pop(known, None)
        else:
            self.clusters[known] = cluster
        self.changed.set()
        self._on_change(cluster)


class _ClusterSink:
    """Receiver of the objects of one resource. Implements `kubeletx.kube.client.ReflectorSink`."""

    def __init__(self, watch: ClusterWatch, resource: Resource) -> None:
        self._watch = watch
        self._resource = resource

    def replace(self, items: Sequence[CustomObject], unreadable: Sequence[ObjectMeta]) -> None:
        present = {f"{one.metadata.namespace}/{one.metadata.name}" for one in items}
        present |= {f"{one.namespace}/{one.name}" for one in unreadable}
        for (resource, key), cluster in list(self._watch.clusters.items()):
            if resource == self._resource and key not in present:
                self._watch.seen(msgspec.structs.replace(cluster, state=ClusterState.GONE))
        for one in items:
            self.put(one)

    def put(self, item: CustomObject) -> None:
        is_deleting = item.metadata.deletion_timestamp is not None
        self._watch.seen(self._cluster(item, ClusterState.DELETING if is_deleting else ClusterState.ALIVE))

    def drop(self, item: CustomObject) -> None:
        self._watch.seen(self._cluster(item, ClusterState.GONE))

    def undecodable(self, meta: ObjectMeta, problem: str) -> None:
        """Keep the last state that could be read. The reflector has already logged the problem."""

    def _cluster(self, item: CustomObject, state: ClusterState) -> StorageCluster:
        meta, resource = item.metadata, self._resource
        subject = ObjectReference(
            kind=item.kind or resource.plural,
            api_version=f"{resource.group}/{resource.version}",
            namespace=meta.namespace,
            name=meta.name,
            uid=meta.uid,
        )
        return StorageCluster(
            resource=resource,
            subject=subject,
            state=state,
            finalizers=meta.finalizers,
            version=meta.resource_version,
        )
