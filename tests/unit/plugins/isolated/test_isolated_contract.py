"""The contract suites of the hooks on the example plugins, each in a child process of the agent."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import ENTRY_POINT_GROUP, AdmissionCheck, HealthCheck, Panel, PodSource, VolumeDriver
from kubeletx.plugins.host import PluginHostParts
from kubeletx.plugins.isolated.processes import PluginProcesses
from kubeletx.plugins.loading import load_plugins
from kubeletx.testing import FakeClock, FakeEventSink, FakeRecords
from kubeletx.testing.contract import (
    AdmissionCheckContract,
    HealthCheckContract,
    PanelContract,
    PodSourceContract,
    VolumeDriverContract,
)

Make = Callable[..., Any]


@pytest.fixture
async def isolated(tmp_path: Path) -> AsyncIterator[Make]:
    """Makes the proxy of an installed example, by its name, with these settings."""
    made: list[PluginProcesses] = []

    def make(name: str, **section: Any) -> Any:
        plugins = load_plugins(p for p in entry_points(group=ENTRY_POINT_GROUP) if p.name == name)
        (registration,) = plugins.registrations
        parts = PluginHostParts(
            node_name="node-1",
            root=tmp_path / "root",
            clock=FakeClock(),
            events=FakeEventSink(),
            records=lambda kind: FakeRecords(),
        )
        settings = plugins.decode_settings({name: section} if section else {})
        made.append(PluginProcesses([registration], parts=parts, own_settings=settings))
        return made[-1].proxy(registration)

    yield make
    for one in made:
        await one.close()


class TestIsolatedHealthCheck(HealthCheckContract):
    @pytest.fixture
    def make_check(self, isolated: Make) -> Callable[[], HealthCheck]:
        return lambda: isolated("disk-space", warningPercent=0.0)

    @pytest.fixture
    def make_failing(self, isolated: Make) -> Callable[[], HealthCheck]:
        return lambda: isolated("disk-space", warningPercent=100.5)


class TestIsolatedPanel(PanelContract):
    @pytest.fixture
    def make_panel(self, isolated: Make) -> Callable[[], Panel]:
        return lambda: isolated("host-load")


class TestIsolatedAdmissionCheck(AdmissionCheckContract):
    @pytest.fixture
    def make_check(self, isolated: Make) -> Callable[[], AdmissionCheck]:
        return lambda: isolated("image-registry", allowed=["ours/"])

    @pytest.fixture
    def allowed_pod(self) -> Mapping[str, Any]:
        return {"spec": {"containers": [{"name": "main", "image": "ours/web:1"}]}}

    @pytest.fixture
    def refused_pod(self) -> Mapping[str, Any]:
        return {"spec": {"containers": [{"name": "main", "image": "theirs/web:1"}]}}


class TestIsolatedPodSource(PodSourceContract):
    @pytest.fixture
    def make_source(self, isolated: Make, tmp_path: Path) -> Callable[[], PodSource]:
        (tmp_path / "pods").mkdir()
        return lambda: isolated("directory-pods", path=str(tmp_path / "pods"), seconds=0.01)

    @pytest.fixture
    def add(self, tmp_path: Path) -> Callable[[str], None]:
        def write(name: str) -> None:
            spec = {"containers": [{"name": "main", "image": "busybox"}]}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
            new = tmp_path / "new"
            new.write_text(json.dumps(pod))
            new.rename(tmp_path / "pods" / f"{name}.json")

        return write

    @pytest.fixture
    def remove(self, tmp_path: Path) -> Callable[[str], None]:
        return lambda name: (tmp_path / "pods" / f"{name}.json").unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
class TestIsolatedVolumeDriver(VolumeDriverContract):
    @pytest.fixture
    def make_driver(self, isolated: Make) -> Callable[[], VolumeDriver]:
        return lambda: isolated("ramdisk")

    @pytest.fixture
    def volume_fields(self) -> Mapping[str, Any]:
        return {"source": "flexVolume", "driver": "example.com/ramdisk", "options": {"size": "4Mi"}}

    @pytest.fixture
    def refused_options(self) -> Sequence[Mapping[str, Any]]:
        return ({"size": "much"},)
