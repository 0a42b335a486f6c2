"""The contract suite of kubeletx on this plugin, and what only this plugin promises."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_disk_space.check import DiskSpace, Settings

from kubeletx.api import HealthCheck, Severity
from kubeletx.testing import FakePluginHost
from kubeletx.testing.contract import HealthCheckContract


class TestDiskSpace(HealthCheckContract):
    @pytest.fixture
    def make_check(self, tmp_path: Path) -> Callable[[], HealthCheck]:
        return lambda: DiskSpace(Settings(warning_percent=0.0), FakePluginHost(tmp_path))

    @pytest.fixture
    def make_failing(self, tmp_path: Path) -> Callable[[], HealthCheck]:
        return lambda: DiskSpace(Settings(warning_percent=100.5), FakePluginHost(tmp_path))


async def test_the_severity_follows_from_the_settings(tmp_path: Path) -> None:
    host = FakePluginHost(tmp_path)
    warns = await DiskSpace(Settings(warning_percent=100.5, error_percent=0.0), host).check()
    fails = await DiskSpace(Settings(warning_percent=100.5, error_percent=100.5), host).check()
    assert (warns.severity, fails.severity) == (Severity.WARNING, Severity.ERROR)
    assert "for /" in warns.message
