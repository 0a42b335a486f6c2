"""Storage clusters as an API server shows them, and the finalizer that holds them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
from kubeletx_flexvolume.attachments.definitions import CLUSTERS, FINALIZER, cluster_resource
from kubeletx_flexvolume.attachments.record import value_of
from kubeletx_flexvolume.attachments.stores import Stores, open_stores
from kubeletx_flexvolume.cleanup.clusters import ClusterState, ClusterWatch, StorageCluster
from kubeletx_flexvolume.cleanup.finalizers import WAITING, FinalizerKeeper

from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble, Grant
from kubeletx_testing.apiserver.resources import Resource
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.attachments.attachment_model import EventsDouble, entry, volume
from plugins.flexvolume.tests.attachments.cluster_model import (
    RECORDS,
    STORAGE_CLUSTERS,
    USER,
    add_cluster,
    close,
    set_up,
)

CEPH = Resource(plural="cephclusters", kind="CephCluster", group="ceph.rook.io")
CEPH_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "cephclusters.ceph.rook.io"},
    "spec": {
        "group": "ceph.rook.io",
        "scope": "Namespaced",
        "names": {"plural": "cephclusters", "kind": "CephCluster"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object"}},
            }
        ],
    },
}


class WatchModel:
    """A watch of the storage clusters, and the keeper of their finalizers if a test starts it."""

    def __init__(self, api: ApiServerDouble, stores: Stores, clock: FakeClock) -> None:
        assert stores.client is not None
        self.api, self.clock = api, clock
        self.seen: list[tuple[str, ClusterState]] = []
        self.events = EventsDouble()
        resources = [CLUSTERS, cluster_resource("ceph.rook.io/v1/cephclusters")]
        self.watch = ClusterWatch(stores.client, resources, clock, self._note)
        self.keeper = FinalizerKeeper(stores.client, self.watch, stores.attachments, self.events, clock)
        self._tasks: list[asyncio.Task[None]] = []

    def _note(self, cluster: StorageCluster) -> None:
        self.seen.append((cluster.key, cluster.state))

    def start(self, run: Callable[[], Any]) -> None:
        self._tasks.append(asyncio.create_task(run(), name="watch model"))

    async def stop(self) -> None:
        for one in self._tasks:
            one.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def finalizers(self, name: str = "main") -> list[str]:
        self.clock.advance(1)
        found = self.api.admin.get(STORAGE_CLUSTERS, name, "default")["metadata"]
        return list(found.get("finalizers") or [])

    def is_gone(self) -> bool:
        self.clock.advance(1)
        return self.api.admin.list(STORAGE_CLUSTERS, "default")["items"] == []


@contextlib.asynccontextmanager
async def watching(api: ApiServerDouble) -> AsyncIterator[WatchModel]:
    clock = FakeClock()
    kubeconfig = set_up(api)
    api.admin.create("customresourcedefinitions", CEPH_DEFINITION)
    api.grant(Grant(subject=USER, verbs=("list", "patch", "watch"), resources=("cephclusters",)))
    stores = open_stores(kubeconfig=kubeconfig, records=None, node="n1", clock=clock)
    made = WatchModel(api, stores, clock)
    made.start(made.watch.run)
    try:
        await made.watch.synced()
        yield made
    finally:
        await made.stop()
        await close(stores)


def put_record(api: ApiServerDouble, name: str, *nodes: str) -> None:
    of = volume(name, cluster="default/main")
    value = {
        "apiVersion": RECORDS.api_version,
        "kind": RECORDS.kind,
        "metadata": {"name": name},
        "spec": value_of([entry(node, volume=of) for node in nodes]),
    }
    api.admin.create(RECORDS, value)


async def test_clusters_of_several_resources_are_seen(api: ApiServerDouble) -> None:
    async with watching(api) as model:
        add_cluster(api.admin, "main", finalizers=["example.com/keep"])
        ceph = {
            "apiVersion": "ceph.rook.io/v1",
            "kind": "CephCluster",
            "metadata": {"name": "rook"},
        }
        api.admin.create(CEPH, ceph, "default")
        await until(lambda: len(model.seen) == 2)
        assert sorted(model.seen) == [
            ("default/main", ClusterState.ALIVE),
            ("default/rook", ClusterState.ALIVE),
        ]
        (found,) = [one for one in model.watch.clusters.values() if one.key == "default/main"]
        assert (found.subject.kind, found.finalizers) == ("StorageCluster", ("example.com/keep",))
        api.admin.delete(STORAGE_CLUSTERS, "main", "default")
        await until(lambda: ("default/main", ClusterState.DELETING) in model.seen)
        api.admin.delete(CEPH, "rook", "default")
        await until(lambda: ("default/rook", ClusterState.GONE) in model.seen)


async def test_a_cluster_that_goes_during_an_outage_is_gone(api: ApiServerDouble) -> None:
    async with watching(api) as model:
        add_cluster(api.admin, "main")
        add_cluster(api.admin, "other")
        await until(lambda: len(model.watch.clusters) == 2)
        backup = api.backup()
        api.admin.delete(STORAGE_CLUSTERS, "main", "default")
        after = api.backup()
        api.restore(backup)
        api.stop()
        api.restore(after)
        api.forget_history()
        api.start()

        def is_seen() -> bool:
            model.clock.advance(30)
            return ("default/main", ClusterState.GONE) in model.seen

        await until(is_seen)
        assert [one.key for one in model.watch.clusters.values()] == ["default/other"]


async def test_a_cluster_is_held_while_records_name_it(api: ApiServerDouble) -> None:
    async with watching(api) as model:
        add_cluster(api.admin, "main", finalizers=["example.com/keep"])
        model.start(model.keeper.run)
        put_record(api, "pv-1", "n1")
        await until(lambda: model.finalizers() == ["example.com/keep", FINALIZER])
        api.admin.delete(RECORDS, "pv-1")
        await until(lambda: model.finalizers() == ["example.com/keep"])


async def test_a_deleted_cluster_waits_for_the_last_record_and_names_the_nodes(api: ApiServerDouble) -> None:
    async with watching(api) as model:
        add_cluster(api.admin, "main")
        put_record(api, "pv-1", "n1", "n2")
        put_record(api, "pv-2", "n3")
        model.start(model.keeper.run)
        await until(lambda: model.finalizers() == [FINALIZER])
        api.admin.delete(STORAGE_CLUSTERS, "main", "default")
        await until(lambda: model.finalizers() and model.events.seen)
        assert model.events.seen[-1] == (
            "default/main",
            WAITING,
            "Volumes of the storage cluster are still attached to the nodes: n1, n2, n3",
        )
        api.admin.delete(RECORDS, "pv-1")

        def is_told() -> bool:
            model.clock.advance(1)
            return "nodes: n3" in model.events.seen[-1][2]

        await until(is_told)
        assert model.finalizers() == [FINALIZER]
        api.admin.delete(RECORDS, "pv-2")
        await until(model.is_gone)


async def test_a_cluster_that_is_deleted_without_the_finalizer_gets_none(api: ApiServerDouble) -> None:
    async with watching(api) as model:
        add_cluster(api.admin, "main", finalizers=["example.com/keep"])
        api.admin.delete(STORAGE_CLUSTERS, "main", "default")
        put_record(api, "pv-1", "n1")
        model.start(model.keeper.run)
        await until(lambda: api.watch_count("volumeattachments") == 1)
        for _ in range(5):
            assert model.finalizers() == ["example.com/keep"]
        assert api.requests.all(user=USER, verb="patch") == []


async def test_a_change_of_others_meanwhile_is_not_lost(api: ApiServerDouble) -> None:
    async with watching(api) as model:
        add_cluster(api.admin, "main")
        await until(lambda: model.watch.clusters)
        (key,) = model.watch.clusters
        old = model.watch.clusters[key]
        api.admin.patch(
            STORAGE_CLUSTERS, "main", {"metadata": {"finalizers": ["example.com/keep"]}}, "default"
        )
        await until(lambda: model.watch.clusters[key].finalizers == ("example.com/keep",))
        stale = msgspec.structs.replace(old, finalizers=())
        model.watch.clusters[key] = stale
        put_record(api, "pv-1", "n1")
        model.start(model.keeper.run)

        def is_refused() -> bool:
            model.clock.advance(1)
            return any(one.code == 409 for one in api.requests.all(user=USER, verb="patch"))

        await until(is_refused)
        assert "example.com/keep" in model.finalizers()
