"""Statistics of claims and other volumes elsewhere: asked once a minute, and a dead file server stops nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from kubeletx.api import PodUid, SourceKind, Unavailable, VolumeStats
from kubeletx.kube.types.core import (
    HostPathVolumeSource,
    NFSVolumeSource,
    PersistentVolumeClaimVolumeSource,
    Pod,
    Volume,
)
from kubeletx.node.host_usage import FsUsage
from kubeletx.pods.eviction.volume_use import VolumeBoard
from kubeletx.testing import FakeClock
from kubeletx.volumes.prepared import PreparedVolume, PreparedVolumes
from tests.unit.pods.manager_model import a_pod

FS = FsUsage(capacity_bytes=100, available_bytes=40, used_bytes=60, inodes=10, inodes_free=4)
UID = PodUid("uid-web")


class World:
    """One pod with a claim, an export and a directory of the node; `asked` lists what the kernel was asked."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.asked: list[str] = []
        self.dead: set[str] = set()
        self.refused: set[str] = set()
        self.back = threading.Event()
        self.pods: list[Pod] = [
            a_pod(
                volumes=(
                    Volume(
                        name="data",
                        persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name="disk"),
                    ),
                    Volume(name="share", nfs=NFSVolumeSource(server="s", path="/x")),
                    Volume(name="node", host_path=HostPathVolumeSource(path="/")),
                )
            )
        ]
        self.kind = SourceKind.DIRECTORY
        self.measured_by_driver: set[str] = set()
        self.board = VolumeBoard(
            pods=lambda: self.pods,
            prepared=self._prepared,
            stats=self._stats,
            blocking=self._blocking,
            clock=self.clock,
            period_seconds=60.0,
            measure=lambda _path: FS,
        )

    def _prepared(self, uid: PodUid) -> PreparedVolumes:
        ready = {
            name: PreparedVolume(
                name=name, source=f"/{name}", kind=self.kind, has_stats=name in self.measured_by_driver
            )
            for name in ("data", "share", "node")
        }
        return PreparedVolumes(uid=uid, volumes=ready)

    async def _stats(self, uid: PodUid, volume: str) -> VolumeStats:
        self.asked.append(f"driver of {volume}")
        if volume in self.refused:
            raise Unavailable("the driver is away")
        return VolumeStats(capacity_bytes=100, used_bytes=70, inodes=10, inodes_free=4)

    async def _blocking(self, function: Callable[..., Any], /, *args: Any) -> Any:
        path = str(args[0])
        self.asked.append(path)
        if path in self.refused:
            raise Unavailable("all threads are busy")
        if path in self.dead:
            while not self.back.is_set():
                await self.clock.sleep(1)
        return function(*args)

    async def run(self, seconds: float) -> None:
        task = asyncio.create_task(self.board.run())
        await self.clock.run_for(seconds)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def world() -> World:
    return World()


async def test_claims_and_exports_are_asked_once_a_minute_and_host_paths_never(world: World) -> None:
    await world.run(175)
    assert world.asked == ["/data", "/share"] * 3
    data, share = world.board.figures[UID]["data"], world.board.figures[UID]["share"]
    assert (data.fs, data.claim, data.use, share.claim) == (FS, "disk", None, "")
    world.pods = []
    await world.run(11)
    assert not world.board.figures


async def test_a_file_server_that_hangs_is_asked_once_and_forgotten_until_it_is_back(world: World) -> None:
    world.dead = {"/share"}
    task = asyncio.create_task(world.board.run())
    await world.clock.run_for(200)
    assert world.asked.count("/share") == 1
    assert world.asked.count("/data") == 4
    assert set(world.board.figures[UID]) == {"data"}
    world.back.set()
    await world.clock.run_for(20)
    assert set(world.board.figures[UID]) == {"data", "share"}
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_volume_that_found_no_thread_keeps_its_figures_and_is_asked_at_the_next_look(
    world: World,
) -> None:
    await world.run(1)
    world.clock.advance(60)
    world.refused = {"/share"}
    await world.run(1)
    assert set(world.board.figures[UID]) == {"data", "share"}
    world.refused = set()
    asked = world.asked.count("/share")
    await world.run(1)
    assert world.asked.count("/share") == asked + 1
    assert world.asked.count("/data") == 2


async def test_a_raw_device_has_no_file_system_to_ask_about(world: World) -> None:
    world.kind = SourceKind.BLOCK_DEVICE
    await world.run(11)
    assert world.asked == []


async def test_a_driver_that_measures_is_asked_instead_of_the_kernel_also_about_a_raw_device(
    world: World,
) -> None:
    world.kind, world.measured_by_driver = SourceKind.BLOCK_DEVICE, {"data"}
    await world.run(11)
    assert world.asked == ["driver of data"]
    expected = FsUsage(capacity_bytes=100, available_bytes=30, used_bytes=70, inodes=10, inodes_free=4)
    assert world.board.figures[UID]["data"].fs == expected
    world.refused = {"data"}
    await world.run(120)
    assert "data" not in world.board.figures[UID]
    assert world.asked.count("driver of data") == 3
