"""The contract suite for volume drivers, with executable FlexVolume drivers on real mounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import VolumeDriver, VolumeRequest
from kubeletx.testing.contract.volume_drivers import VolumeDriverContract
from tests.integration.storage.flex_drivers import LOOP, TMPFS, StorageNode, grow

SYS_RESOURCE = 24
"""Number of CAP_SYS_RESOURCE. Source: linux/capability.h."""


class RealContract(VolumeDriverContract):
    """The suite with one of the drivers."""

    driver = ""

    @pytest.fixture
    def real_node(self, tmp_path: Path) -> Iterator[StorageNode]:
        (tmp_path / "storage").mkdir()
        made = StorageNode(tmp_path / "storage")
        made.install(self.driver)
        yield made
        made.clean_up()

    @pytest.fixture
    def make_driver(self, real_node: StorageNode) -> Callable[[], VolumeDriver]:
        return real_node.make

    @pytest.fixture
    def volume_fields(self) -> Mapping[str, Any]:
        return {"source": "flexVolume", "driver": self.driver}

    @pytest.fixture
    def refused_options(self) -> Sequence[Mapping[str, Any]]:
        return ({"kubernetes.io/fsType": "ext4"}, {"size": 1})


class TestTmpfsDriver(RealContract):
    driver = TMPFS

    async def test_a_volume_is_expanded_and_keeps_its_data(self) -> None:  # type: ignore[override]
        """Not applicable: the driver supports neither expandvolume nor expandfs, and a tmpfs has no device."""


class TestLoopDriver(RealContract):
    driver = LOOP
    keeps_data = True
    shared_by_pods = True

    @pytest.fixture
    def grow(self, real_node: StorageNode) -> Callable[[VolumeRequest, int], None]:
        if not has_capability(SYS_RESOURCE):
            pytest.skip(
                "Linux lets ext4 grow only with CAP_SYS_RESOURCE; test_flex_host.py has a test with xfs"
            )
        return lambda request, size_bytes: grow(real_node, real_node.devices()[0], size_bytes)


def has_capability(number: int) -> bool:
    """Return True if this process has a capability of Linux; containers of tests may lack one."""
    lines = Path("/proc/self/status").read_text().split("\n")
    found = next(line for line in lines if line.startswith("CapEff:"))
    return bool(int(found.split()[1], 16) >> number & 1)
