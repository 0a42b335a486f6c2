"""The contract suites of kubeletx on the host of FlexVolume drivers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.plugin import PANEL, make_panel

from kubeletx.api import Panel, VolumeDriver
from kubeletx.testing import FakePluginHost
from kubeletx.testing.contract import PanelContract
from kubeletx.testing.contract.volume_drivers import VolumeDriverContract
from plugins.flexvolume.tests.host.flex_model import DRIVER, OK, FlexNode, says

FILES = "example.com/files"


class FlexContract(VolumeDriverContract):
    """The suite for one kind of executable driver."""

    @pytest.fixture
    def flex_node(self, tmp_path: Path) -> FlexNode:
        (tmp_path / "flex").mkdir()
        return FlexNode(tmp_path / "flex")

    @pytest.fixture
    def make_driver(self, flex_node: FlexNode) -> Callable[[], VolumeDriver]:
        self.install(flex_node)
        return flex_node.make

    @pytest.fixture
    def volume_fields(self) -> Mapping[str, Any]:
        return {"source": "flexVolume", "driver": DRIVER}

    @pytest.fixture
    def refused_options(self) -> Sequence[Mapping[str, Any]]:
        return ({"kubernetes.io/fsType": "ext4"}, {"size": 1}, {"x": "\0"})

    def install(self, flex_node: FlexNode) -> None:
        raise NotImplementedError


class TestDriverThatWritesFiles(FlexContract):
    def install(self, flex_node: FlexNode) -> None:
        init = '{"status":"Success","capabilities":{"attach":false,"supportsMetrics":true,"fsGroup":false}}'
        flex_node.install(
            {
                "init": says(init),
                "mount": f'[ -d "$2" ]; {says(OK)}',
                "unmount": f'rm -rf "$2"/*; {says(OK)}',
                "expandvolume": says(OK),
                "expandfs": says('{"status":"Success","volumeNewSize":67108864}'),
            }
        )


class TestDriverWithAttachAndOnlyFiles(FlexContract):
    shared_by_pods = False

    def install(self, flex_node: FlexNode) -> None:
        flex_node.install_attaching(
            mountdevice=says(OK),
            unmountdevice=says(OK),
            mount=says(OK),
            unmount=f'rm -rf "$2"/*; {says(OK)}',
            expandvolume=says(OK),
            expandfs=says('{"status":"Success","volumeNewSize":67108864}'),
        )


class TestPanelOfDrivers(PanelContract):
    @pytest.fixture
    def make_panel(self, tmp_path: Path) -> Callable[[], Panel]:
        (tmp_path / PANEL).mkdir()
        return lambda: make_panel(None, FakePluginHost(tmp_path / PANEL))
