"""The contract suite of kubeletx on this plugin, and what only this plugin promises."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kubeletx_ramdisk.driver import Ramdisk, Settings, size_of

from kubeletx.api import InvalidPod, VolumeDriver
from kubeletx.testing import FakeVolumeHost, volume_request
from kubeletx.testing.contract import VolumeDriverContract


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts need root")
class TestRamdisk(VolumeDriverContract):
    @pytest.fixture
    def make_driver(self, tmp_path: Path) -> Callable[[], VolumeDriver]:
        host = FakeVolumeHost(tmp_path)
        return lambda: Ramdisk(Settings(), host)

    @pytest.fixture
    def volume_fields(self) -> Mapping[str, Any]:
        return {"source": "csi", "driver": "ramdisk.example.com", "options": {"size": "4Mi"}}

    @pytest.fixture
    def refused_options(self) -> Sequence[Mapping[str, Any]]:
        return ({"size": "much"}, {"size": "0"}, {"size": "2Gi"})

    async def test_a_volume_has_the_size_of_its_option(self, volumes: Any) -> None:
        driver, request = await volumes.open(), volumes.request(options={"size": "64Ki"})
        await volumes.prepare(driver, request)
        stats = await driver.stats(request)
        assert (stats.capacity_bytes, stats.used_bytes) == (65536, 0)
        await volumes.release(driver, request)


@pytest.mark.parametrize("size", ["-1", "0", "1.2.3", "much", "2Gi"])
def test_a_size_that_cannot_be_is_refused(size: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidPod, match=f"size: .*{size}"):
        size_of(volume_request(tmp_path, options={"size": size}), 1 << 30)


def test_without_the_option_a_volume_is_as_large_as_its_persistent_volume(tmp_path: Path) -> None:
    assert size_of(volume_request(tmp_path, capacity_bytes=4096), 1 << 30) == 4096
    assert size_of(volume_request(tmp_path), 1 << 30) == 64 << 20
