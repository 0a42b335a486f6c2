"""`FinalizerKeeper`: keeps deleted storage clusters until no attachment record names them.

The agent that scans adds the finalizer to each storage cluster that a record names, and removes
it when no record names the cluster any more. So a deleted cluster stays visible, with its deletion timestamp, until the
volumes of it are off all nodes, also for a node whose agent is down at that time.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import Final

import structlog

from kubeletx.api import (
    Clock,
    Conflict,
    KubeletxError,
    NotFound,
    RecordGone,
    RecordPut,
    Records,
    RecordsSynced,
    sleep_or,
)
from kubeletx.kube.client import KubeClient, Patch
from kubeletx.kube.types.custom import CustomObject

from ..attachments.definitions import FINALIZER
from ..attachments.events import AttachmentEvents
from ..attachments.record import origins_of
from .clusters import ClusterState, ClusterWatch, StorageCluster

log = structlog.get_logger(__name__)

SETTLE_SECONDS: Final = 0.5
"""Pause after a change, so that many changes are handled at once."""
RETRY_SECONDS: Final = 30.0
WAITING: Final = "WaitingForNodes"


class FinalizerKeeper:
    """Adds and removes the finalizer of storage clusters. Only one agent of a cluster runs it."""

    def __init__(
        self,
        client: KubeClient,
        watch: ClusterWatch,
        records: Records,
        events: AttachmentEvents,
        clock: Clock,
    ) -> None:
        """`records`: attachment records. `watch`: runs in another task."""
        self._client = client
        self._watch = watch
        self._records = records
        self._events = events
        self._clock = clock
        self._used: dict[str, dict[str, set[str]]] = {}
        """Nodes by volume by cluster."""
        self._waiting: dict[str, list[str]] = {}
        """Nodes that the last event of a deleted cluster named."""

    async def run(self) -> None:
        synced = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(synced), name="records of storage clusters")
            await synced.wait()
            await self._watch.synced()
            self._watch.changed.set()
            while True:
                await self._wait()
                for cluster in list(self._watch.clusters.values()):
                    await self._keep(cluster)

    async def _wait(self) -> None:
        await sleep_or(self._clock, RETRY_SECONDS, self._watch.changed)
        await self._clock.sleep(SETTLE_SECONDS)
        self._watch.changed.clear()

    async def _follow(self, synced: asyncio.Event) -> None:
        """Keep `_used` current."""
        async with aclosing(self._records.watch()) as events:
            async for event in events:
                match event:
                    case RecordPut(record):
                        self._forget(record.name)
                        for origin in (one for one in origins_of(record) if one.cluster):
                            volumes = self._used.setdefault(origin.cluster, {})
                            volumes.setdefault(record.name, set()).add(origin.node)
                        self._watch.changed.set()
                    case RecordGone(name):
                        self._forget(name)
                        self._watch.changed.set()
                    case RecordsSynced():
                        synced.set()

    def _forget(self, volume: str) -> None:
        for cluster in list(self._used):
            self._used[cluster].pop(volume, None)
            if not self._used[cluster]:
                del self._used[cluster]

    async def _keep(self, cluster: StorageCluster) -> None:
        nodes = sorted({node for found in self._used.get(cluster.key, {}).values() for node in found})
        is_deleting, has = cluster.state is ClusterState.DELETING, FINALIZER in cluster.finalizers
        if is_deleting and has and nodes:
            await self._report(cluster, nodes)
        if bool(nodes) == has or (
            nodes and is_deleting
        ):  # the server refuses new finalizers for a deleted object
            return
        others = [finalizer for finalizer in cluster.finalizers if finalizer != FINALIZER]
        wanted = [*others, FINALIZER] if nodes else others
        change = {"metadata": {"finalizers": wanted, "resourceVersion": cluster.version}}
        path = cluster.resource.path(*cluster.key.split("/"))
        try:
            await self._client.patch(path, change, CustomObject, kind=Patch.MERGE)
        except (Conflict, NotFound):
            return  # changed meanwhile: the watch shows it, and wakes this task
        except KubeletxError as error:
            log.warning(
                "Failed to change the finalizers of a storage cluster", cluster=cluster.key, err=str(error)
            )
            return
        log.info(
            "Changed the finalizers of a storage cluster", cluster=cluster.key, has_finalizer=bool(nodes)
        )

    async def _report(self, cluster: StorageCluster, nodes: list[str]) -> None:
        if self._waiting.get(cluster.key) == nodes:
            return
        self._waiting[cluster.key] = nodes
        words = ", ".join(nodes[:10]) + (f" and {len(nodes) - 10} more" if len(nodes) > 10 else "")
        message = f"Volumes of the storage cluster are still attached to the nodes: {words}"
        await self._events.of_object(cluster.subject, reason=WAITING, message=message)
