"""Volumes whose devices have grown: the driver expands the file system, and the claim gets the new size."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec.structs import replace

from kubeletx.api import ClusterVolume, PodUid, Unavailable, VolumeCapabilities
from kubeletx.testing import FakeClock, FakeEventSink, FakeVolumeDriver
from kubeletx.volumes.drivers import DriverEntry
from kubeletx.volumes.drivers.expansion import VolumeExpansion
from tests.unit.volumes.volume_doubles import FakeCluster, make_pod, make_preparer

GIB = 1 << 30
CLAIM = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]}


class World:
    """One pod with a claim whose volume a fake driver serves."""

    def __init__(self, tmp_path: Path, *, can_expand: bool = True) -> None:
        self.clock, self.sink, self.cluster = FakeClock(), FakeEventSink(), FakeCluster()
        self.driver = FakeVolumeDriver(tmp_path / "volumes", VolumeCapabilities(expand=can_expand))
        self.preparer = make_preparer(tmp_path / "root")
        self.preparer.drivers.add(DriverEntry(name="disks", driver=self.driver, sources=("flexVolume",)))
        self.cluster.claims["data"] = ClusterVolume(
            name="pv-1",
            kind="flexVolume",
            claim="data",
            source={"driver": "example.com/disk"},
            capacity_bytes=GIB,
            claim_bytes=GIB,
        )
        self.expansion = VolumeExpansion(
            volumes=self.preparer.driven,
            cluster_of=self._cluster_of,
            events=self.sink,
            clock=self.clock,
        )

    def _cluster_of(self, uid: PodUid) -> FakeCluster | None:
        return self.cluster if uid == "u1" else None

    def grow(self, size: int) -> None:
        self.cluster.claims["data"] = replace(self.cluster.claims["data"], capacity_bytes=size)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.expansion.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_grown_volume_is_expanded_within_a_minute_and_the_claim_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    async with world.running():
        await world.preparer.prepare(make_pod(CLAIM), world.cluster)
        await world.clock.run_for(1)
        assert world.driver.sizes == {}
        world.grow(2 * GIB)
        await world.clock.run_for(60)
    assert world.driver.sizes == {"pv-1": 2 * GIB}
    assert world.cluster.expanded == {"data": 2 * GIB}
    (event,) = world.sink.recorded
    assert (event.reason, event.ref.name) == ("FileSystemResizeSuccessful", "web")


async def test_a_failed_expansion_is_recorded_once_and_tried_again(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.driver.failures["expand pv-1"] = Unavailable("the device is busy")
    world.grow(2 * GIB)
    async with world.running():
        await world.preparer.prepare(make_pod(CLAIM), world.cluster)
        await world.clock.run_for(130)
        assert world.sink.reasons() == ["FileSystemResizeFailed"]
        assert world.cluster.expanded == {}
        world.driver.failures.clear()
        await world.clock.run_for(60)
    assert world.sink.reasons() == ["FileSystemResizeFailed", "FileSystemResizeSuccessful"]
    assert world.cluster.expanded == {"data": 2 * GIB}


async def test_without_a_driver_that_expands_no_claim_is_read(tmp_path: Path) -> None:
    world = World(tmp_path, can_expand=False)
    world.grow(2 * GIB)
    async with world.running():
        await world.preparer.prepare(make_pod(CLAIM), world.cluster)
        await world.clock.run_for(300)
    assert world.driver.calls == ["prepare pv-1"]
