"""Clean-ups on one node: order of steps and events, volumes that hang, restarts, other nodes' entries."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from kubeletx_flexvolume.cleanup.cleaner import ROUND_SECONDS, CleanupJournal, ClusterCleaner, VolumeObjects
from kubeletx_flexvolume.cleanup.clusters import ClusterState, StorageCluster
from kubeletx_flexvolume.cleanup.sequence import CleanupStep, VolumeCleanup

from kubeletx.api import Unavailable
from kubeletx.kube.client import KubeClient, Resource, load_kubeconfig
from kubeletx.kube.types.meta import ObjectReference
from kubeletx.testing import FakeClock
from kubeletx_testing.apiserver import ApiServerDouble
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.attachments.attachment_model import (
    NodeModel,
    StorageModel,
    entry,
    volume,
)
from plugins.flexvolume.tests.attachments.cluster_model import add_pod, add_volume, close, set_up

MAIN = "storage/main"
OF_MAIN = {"cluster": MAIN}


def cluster(state: ClusterState = ClusterState.DELETING, name: str = "main") -> StorageCluster:
    subject = ObjectReference(kind="StorageCluster", namespace="storage", name=name, uid=f"{name}-uid")
    return StorageCluster(
        resource=Resource("storage.kubeletx.io", "v1alpha1", "storageclusters"), subject=subject, state=state
    )


class ObjectsDouble:
    """Claims and PersistentVolumes; `calls`: what was asked. `fails`: the API server does not answer."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.fails = False

    async def look_up(self, state: VolumeCleanup) -> VolumeCleanup:
        self._answer("look up")
        return msgspec.structs.replace(
            state, is_looked_up=True, claim_namespace="default", claim_name="data", volume_uid="u"
        )

    async def delete_claim(self, state: VolumeCleanup) -> bool:
        self._answer("delete claim")
        return True

    async def delete_volume(self, state: VolumeCleanup) -> bool:
        self._answer("delete volume")
        return True

    def _answer(self, call: str) -> None:
        self.calls.append(call)
        if self.fails:
            raise Unavailable("the API server does not answer")


class CleanerModel:
    """A node with its cleaner. `restart` makes another one over the same journal."""

    def __init__(self, path: Path, objects: Any = None) -> None:
        self.model = StorageModel("n1", "n2")
        self.node = NodeModel(self.model)
        self.objects: Any = objects or ObjectsDouble()
        self.path = path
        self.clock = FakeClock()
        self.restart()

    def restart(self) -> None:
        self.journal = CleanupJournal(self.path, asyncio.to_thread)
        self.cleaner = ClusterCleaner(
            "n1",
            msgspec.structs.replace(self.model.stores, clock=self.clock),
            local=lambda: self.node.local,
            objects=self.objects,
            journal=self.journal,
            step_seconds=0.2,
        )

    async def mount(self, name: str = "pv-1", **more: Any) -> None:
        of = volume(name, **{**OF_MAIN, **more})
        self.node.local.mount(of, await self.node.take(of))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        await self.cleaner.load()
        task = asyncio.create_task(self.cleaner.run(), name="cleaner")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.model.events.seen]

    def done(self) -> bool:
        self.clock.advance(ROUND_SECONDS)
        return not self.node.local.present and "RemovedAttachment" in self.reasons()


@pytest.fixture
def here(tmp_path: Path) -> CleanerModel:
    return CleanerModel(tmp_path / "cleanup.json")


async def test_a_volume_goes_step_by_step_with_an_event_for_each(here: CleanerModel) -> None:
    await here.mount()
    async with here.running():
        here.cleaner.on_cluster(cluster())
        await until(here.done)
    assert here.objects.calls == ["look up", "delete claim", "delete volume"]
    assert here.reasons() == [
        "DeletedClaim",
        "UnmappedVolume",
        "DeletedPersistentVolume",
        "UnmountedVolume",
        "RemovedAttachment",
    ]
    assert here.model.events.seen[0] == (
        MAIN,
        "DeletedClaim",
        "Node n1 deleted the claim default/data of volume pv-1",
    )
    assert {force for _, _, force in here.node.local.dropped} == {True}
    assert await here.model.holders() == []


async def test_other_clusters_and_other_nodes_keep_what_is_theirs(here: CleanerModel) -> None:
    await here.mount("pv-2", cluster="storage/other")
    await here.mount("pv-3", cluster="")
    await here.model.put(entry("n1"), entry("n2", "b"))
    here.node.local.mount(volume(**OF_MAIN), here.node.holder())
    async with here.running():
        here.cleaner.on_cluster(cluster())
        await until(lambda: "RemovedAttachment" in here.reasons())
    assert sorted(here.node.local.present) == ["pv-2", "pv-3"]
    assert await here.model.holders("pv-1") == ["n2/b"]


async def test_volumes_of_a_deleted_cluster_are_refused(here: CleanerModel) -> None:
    of = volume(**OF_MAIN)
    assert here.cleaner.refuses(of) == ""
    here.cleaner.on_cluster(cluster())
    assert here.cleaner.refuses(of) == "storage cluster storage/main of volume pv-1 is being deleted"
    assert here.cleaner.refuses(volume(cluster="storage/other")) == ""
    assert here.cleaner.refuses(volume()) == ""
    here.cleaner.on_cluster(cluster(ClusterState.ALIVE))
    assert here.cleaner.refuses(of) == ""


async def test_one_volume_that_hangs_does_not_stop_the_others(here: CleanerModel) -> None:
    for name in ("pv-1", "pv-2", "pv-3"):
        await here.mount(name)
    here.node.local.hangs = {"pv-2"}
    async with here.running():
        here.cleaner.on_cluster(cluster())
        await until(lambda: list(here.node.local.present) == ["pv-2"])
        await until(lambda: len([one for one in here.node.local.dropped if one[0] == "pv-2"]) >= 2)
        assert here.objects.calls.count("delete volume") == 3, "the PersistentVolume goes, hanging or not"
        here.node.local.hangs.clear()
        await until(here.done)
        await until(lambda: here.reasons().count("RemovedAttachment") == 3)


async def test_a_volume_that_stays_in_use_is_reported_once_with_the_reason(here: CleanerModel) -> None:
    await here.mount()
    here.node.local.fails = {"pv-1"}
    async with here.running():
        here.cleaner.on_cluster(cluster())

        def was_tried(times: int) -> bool:
            here.clock.advance(ROUND_SECONDS)
            return len(here.node.local.dropped) >= times

        await until(lambda: was_tried(4))
        assert here.reasons() == ["DeletedClaim", "DeletedPersistentVolume", "CleanupBlocked"]
        message = here.model.events.seen[-1][2]
        assert message == "Node n1 cannot remove volume pv-1 yet, and tries again: volume pv-1 is busy"
        here.node.local.fails.clear()
        await until(here.done)
    assert here.reasons()[3:] == ["UnmappedVolume", "UnmountedVolume", "RemovedAttachment"]


async def test_a_clean_up_goes_on_after_a_restart_without_any_object(here: CleanerModel) -> None:
    await here.mount()
    here.node.local.fails = {"pv-1"}
    async with here.running():
        here.cleaner.on_cluster(cluster())
        await until(lambda: "DeletedPersistentVolume" in here.reasons())
        await until(lambda: len(here.node.local.dropped) >= 2)
    here.node.local.fails.clear()
    here.restart()
    here.objects.fails = True
    calls = list(here.objects.calls)
    await here.cleaner.load()
    assert here.cleaner.refuses(volume(**OF_MAIN)) != ""
    async with here.running():
        await until(here.done)
        await until(lambda: here.cleaner.refuses(volume(**OF_MAIN)) == "")
    assert here.objects.calls == calls
    here.restart()
    assert await here.journal.load() == ()


async def test_an_api_server_that_is_gone_does_not_keep_devices(here: CleanerModel) -> None:
    await here.mount()
    here.objects.fails = True
    async with here.running():
        here.cleaner.on_cluster(cluster())
        await until(here.done)
    assert here.objects.calls.count("look up") == 6, "three times for each of the two objects"
    assert "DeletedClaim" not in here.reasons()


async def test_a_cluster_that_vanished_is_cleaned_up_and_forgotten(here: CleanerModel) -> None:
    await here.mount()
    async with here.running():
        here.cleaner.on_cluster(cluster(ClusterState.GONE))
        await until(here.done)

        def is_forgotten() -> bool:
            here.clock.advance(ROUND_SECONDS)
            return here.cleaner.refuses(volume(**OF_MAIN)) == ""

        await until(is_forgotten)


async def test_a_volume_that_was_being_mounted_is_found_later(here: CleanerModel) -> None:
    async with here.running():
        here.cleaner.on_cluster(cluster())
        await here.mount()
        await until(here.done)


# --- the journal ---


async def test_the_journal_has_what_the_steps_need(tmp_path: Path) -> None:
    journal = CleanupJournal(tmp_path / "cleanup.json", asyncio.to_thread)
    of = volume(parameters={"server": "10.0.0.1"}, **OF_MAIN)
    state = VolumeCleanup(
        volume=of, cluster=cluster().subject, step=CleanupStep.UNMOUNT, volume_uid="u", tries=2
    )
    await journal.save([state])
    assert await journal.load() == (state,)
    assert (tmp_path / "cleanup.json").stat().st_mode & 0o777 == 0o600
    await journal.save([])
    assert await journal.load() == ()


async def test_a_journal_of_the_first_version_is_read_and_a_damaged_one_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "cleanup.json"
    state = VolumeCleanup(volume=volume(), cluster=cluster().subject)
    path.write_bytes(msgspec.json.encode({"volumes": [state]}))
    journal = CleanupJournal(path, asyncio.to_thread)
    assert await journal.load() == (state,)
    path.write_text("{")
    assert await journal.load() == ()
    assert path.with_name("cleanup.json.damaged").exists()


async def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    journal = CleanupJournal(Path("/proc/none/cleanup.json"), asyncio.to_thread)
    with pytest.raises(Unavailable, match="cannot be written"):
        await journal.save([])


# --- objects of the cluster ---


async def test_only_objects_of_the_driver_are_deleted_and_only_those_that_were_seen(
    api: ApiServerDouble,
) -> None:
    client = KubeClient(load_kubeconfig(set_up(api)), clock=FakeClock(auto_advance=True))
    objects = VolumeObjects(client)
    add_volume(api.admin, "pv-1", claim="data")
    add_pod(api.admin, "web-0", "data")
    add_volume(api.admin, "pv-2", claim="other", driver="example.com/another")
    state = VolumeCleanup(volume=volume("pv-1"), cluster=cluster().subject)
    found = await objects.look_up(state)
    assert await objects.delete_claim(found)
    assert await objects.delete_volume(found)
    for plural, name, namespace in (
        ("persistentvolumeclaims", "data", "default"),
        ("persistentvolumes", "pv-1", ""),
    ):
        metadata = api.admin.get(plural, name, namespace)["metadata"]
        assert "deletionTimestamp" in metadata, "its finalizer keeps it until nothing uses it"
    api.admin.delete("pods", "web-0", "default", gracePeriodSeconds=0)
    assert not await objects.delete_claim(found)
    add_volume(api.admin, "pv-1", claim="data")
    assert not await objects.delete_claim(found), "another claim has its name now"
    assert not await objects.delete_volume(found)
    foreign = await objects.look_up(VolumeCleanup(volume=volume("pv-2"), cluster=cluster().subject))
    assert not await objects.delete_claim(foreign)
    assert not await objects.delete_volume(foreign)
    gone = await objects.look_up(VolumeCleanup(volume=volume("pv-9"), cluster=cluster().subject))
    assert (gone.is_looked_up, await objects.delete_volume(gone)) == (True, False)
    await close(client)
