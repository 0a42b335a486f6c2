"""Many volumes of drivers at the same time: more than there are threads, in a whole agent."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from kubeletx.api import ReadyVolume, VolumeHost, VolumeRequest
from kubeletx.kube.types.core import FlexVolumeSource, Volume
from kubeletx.plugins.host import VOLUME_THREADS
from kubeletx.plugins.registrations import Hook, Registration
from kubeletx.testing import FakeVolumeDriver
from tests.unit.agent.agent_model import AgentModel, a_pod

MANY = 3 * VOLUME_THREADS


class SlowDriver(FakeVolumeDriver):
    """A driver whose `prepare` blocks a thread of its host until `gate` is set."""

    def __init__(self, base: Path, host: VolumeHost) -> None:
        super().__init__(base)
        self.host = host
        self.gate = threading.Event()

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        self.calls.append(f"prepare {request.name}")
        assert await self.host.blocking(self.gate.wait, 60)
        return await super().prepare(request)


async def test_a_burst_of_volumes_waits_for_threads_and_fails_none(tmp_path: Path) -> None:
    model, made = AgentModel(tmp_path, ("one",)), []

    def factory(settings: Any, host: Any) -> SlowDriver:
        made.append(SlowDriver(tmp_path / "disks", host))
        return made[-1]

    model.registrations.add(
        Registration(
            hook=Hook.VOLUME_DRIVER, name="disks", factory=factory, plugin="disks", sources=("flexVolume",)
        )
    )
    volumes = [
        Volume(name=f"v{number}", flex_volume=FlexVolumeSource(driver="a/b")) for number in range(MANY)
    ]
    async with model.running() as backend:
        (driver,) = made
        await backend.pods.apply_pod(a_pod(volumes=tuple(volumes)))
        await model.until(lambda: len(driver.calls) > MANY)
        driver.gate.set()
        await model.until(lambda: model.phase("web") == "Running")
        assert [one.message for one in await backend.node.list_events() if one.reason == "FailedMount"] == []
        assert len(driver.prepared) == MANY
