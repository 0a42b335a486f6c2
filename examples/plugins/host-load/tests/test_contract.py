"""The contract suite of kubeletx on this plugin."""

from collections.abc import Callable
from pathlib import Path

import pytest
from kubeletx_host_load.panel import HostLoad

from kubeletx.api import Panel
from kubeletx.testing import FakePluginHost
from kubeletx.testing.contract import PanelContract


class TestHostLoad(PanelContract):
    @pytest.fixture
    def make_panel(self, tmp_path: Path) -> Callable[[], Panel]:
        return lambda: HostLoad(None, FakePluginHost(tmp_path))
