"""A whole agent with a volume driver of a plugin: pods start, are shown, restart with the agent, and end."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from kubeletx.api import Unavailable, UnitState, VolumeRequest
from kubeletx.kube.types.core import Container, FlexVolumeSource, Volume, VolumeMount
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.server.views import DeleteOptions, PodTarget
from kubeletx.testing import FakeVolumeDriver
from kubeletx.volumes.drivers import DriverEntry
from kubeletx_testing.waiting import GUARD_SECONDS, let_others_work
from tests.unit.agent.agent_model import AgentModel, a_pod
from tests.unit.volumes.volume_doubles import make_pod, make_preparer

TARGET = PodTarget(namespace="default", name="web")


class Disks:
    """A plugin whose driver keeps its volumes over restarts of the agent."""

    def __init__(self, model: AgentModel, base: Path) -> None:
        self.driver = FakeVolumeDriver(base)
        registration = Registration(
            hook=Hook.VOLUME_DRIVER,
            name="disks",
            factory=lambda settings, host: self.driver,
            plugin="disks",
            sources=("flexVolume",),
        )
        model.registrations.add(registration)


@pytest.fixture
def model(tmp_path: Path) -> AgentModel:
    return AgentModel(tmp_path, ("one",))


@pytest.fixture
def disks(model: AgentModel, tmp_path: Path) -> Disks:
    return Disks(model, tmp_path / "disks")


def web(name: str = "web") -> Any:
    mounts = (VolumeMount(name="data", mount_path="/data"),)
    return a_pod(
        name,
        containers=(Container(name="main", image="busybox", volume_mounts=mounts),),
        volumes=(
            Volume(name="data", flex_volume=FlexVolumeSource(driver="example.com/disk")),
            Volume(name="scratch"),
        ),
    )


async def delete(model: AgentModel, *, grace: int = 0) -> None:
    await model.done(model.parts.backend.pods.delete_pod(TARGET, DeleteOptions(grace_seconds=grace)))


async def test_a_pod_gets_its_volume_and_the_driver_gets_it_back(model: AgentModel, disks: Disks) -> None:
    async with model.running() as backend:
        made = await model.apply(web())
        (unit,) = model.runtimes["one"].backend.units.values()
        assert unit.spec is not None
        assert [one.source for one in unit.spec.mounts if one.target == "/data"] == [
            str(model.root / "disks/data")
        ]
        shown = {one.name: one for one in await backend.volumes.list_volumes()}
        assert (shown["data"].kind, shown["data"].driver, shown["data"].state) == (
            "example.com/disk",
            "disks",
            "ready",
        )
        assert (shown["scratch"].kind, shown["scratch"].driver) == ("kubernetes.io/empty-dir", "")
        await delete(model)
        await model.until(lambda: model.parts.manager.find("default", "web") is None)
        assert disks.driver.calls == ["open", "prepare data", "release data"]
        assert not (model.root / "root/pods" / str(made.uid)).exists()
    assert disks.driver.calls[-1] == "close"


async def test_an_agent_that_was_away_prepares_nothing_twice_and_releases_in_the_end(
    model: AgentModel, disks: Disks
) -> None:
    async with model.running():
        await model.apply(web())
    async with model.running():
        await model.until(lambda: model.phase("web") == "Running")
        await delete(model)
        await model.until(lambda: not disks.driver.prepared)
    assert disks.driver.calls.count("prepare data") == 1


async def test_a_driver_that_fails_is_in_the_events_and_in_the_volume_and_the_pod_starts_when_it_works(
    model: AgentModel, disks: Disks
) -> None:
    disks.driver.failures["prepare data"] = Unavailable("the backend is away")
    async with model.running() as backend:
        await backend.pods.apply_pod(web())
        await model.until(lambda: "prepare data" in disks.driver.calls)
        (shown,) = [one for one in await backend.volumes.list_volumes() if one.driver]
        assert (shown.state, shown.message) == ("preparing", "the backend is away")
        events = [one.message for one in (await backend.node.list_events()) if one.reason == "FailedMount"]
        assert events == ['MountVolume.SetUp failed for volume "data" : the backend is away']
        plugins = {one.name: one for one in await backend.about.plugins()}
        assert plugins["disks"].state == "ready", "the driver has answered; it is not broken"
        disks.driver.failures.clear()
        await model.until(lambda: model.phase("web") == "Running")
        (shown,) = [one for one in await backend.volumes.list_volumes() if one.driver]
        assert (shown.state, shown.message) == ("ready", "")


async def test_a_release_that_fails_is_an_event_and_the_pod_waits_for_it(
    model: AgentModel, disks: Disks
) -> None:
    disks.driver.failures["release data"] = Unavailable("the volume is in use")
    async with model.running() as backend:
        await model.apply(web())
        await delete(model)
        await model.until(lambda: "release data" in disks.driver.calls)
        failed: list[str] = []
        async with asyncio.timeout(GUARD_SECONDS):
            while not failed:
                await let_others_work()
                events = await backend.node.list_events()
                failed = [one.message or "" for one in events if one.reason == "FailedKillPod"]
        assert failed == ["the volume is in use"]
        assert model.parts.manager.find("default", "web") is not None
        disks.driver.failures.clear()
        await model.until(lambda: model.parts.manager.find("default", "web") is None)
        assert disks.driver.prepared == {}


async def test_the_volumes_of_a_pod_that_is_in_no_record_are_released_by_the_driver(
    model: AgentModel, disks: Disks
) -> None:
    async with model.running():
        pass
    lost = make_preparer(model.root / "root")
    lost.drivers.add(DriverEntry(name="disks", driver=disks.driver, sources=("flexVolume",)))
    await lost.prepare(make_pod({"volumes": [{"name": "d", "flexVolume": {"driver": "a/b"}}]}, uid="lost"))
    async with model.running():
        await model.until(lambda: not (model.root / "root/pods/lost").exists())
    assert disks.driver.calls[-2:] == ["release d", "close"]
    assert disks.driver.prepared == {}


async def test_devices_that_drivers_attached_are_in_the_status_of_the_node(
    model: AgentModel, disks: Disks
) -> None:
    prepare = disks.driver.prepare

    async def with_device(request: VolumeRequest) -> Any:
        return replace(await prepare(request), device="/dev/sdx")

    disks.driver.prepare = with_device  # type: ignore[method-assign]
    async with model.running() as backend:
        await model.apply(web())
        status = (await backend.node.get_node()).status
        assert status.volumes_in_use == ("example.com/disk/data",)
        assert [(one.name, one.device_path) for one in status.volumes_attached] == [
            ("example.com/disk/data", "/dev/sdx")
        ]
        await delete(model)
        await model.until(lambda: not disks.driver.prepared)
        await model.until(lambda: model.parts.manager.find("default", "web") is None)
        assert (await backend.node.get_node()).status.volumes_in_use == ()
    assert all(
        unit.summary.state is not UnitState.RUNNING for unit in model.runtimes["one"].backend.units.values()
    )
