"""The volume driver on plain directories keeps the contract of volume drivers, whatever it declares."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kubeletx.api import VolumeCapabilities, VolumeDriver
from kubeletx.testing import FakeVolumeDriver
from kubeletx.testing.contract import VolumeDriverContract


class TestFakeVolumeDriver(VolumeDriverContract):
    keeps_data = True
    shared_by_pods = True

    @pytest.fixture
    def make_driver(self, tmp_path: Path) -> Callable[[], VolumeDriver]:
        return lambda: FakeVolumeDriver(tmp_path / "volumes")

    @pytest.fixture
    def refused_options(self) -> Sequence[Mapping[str, Any]]:
        return ({"invalid": "1"},)


class TestWithoutCapabilities(VolumeDriverContract):
    keeps_data = True

    @pytest.fixture
    def make_driver(self, tmp_path: Path) -> Callable[[], VolumeDriver]:
        return lambda: FakeVolumeDriver(tmp_path / "volumes", VolumeCapabilities())
