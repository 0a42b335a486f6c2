"""The plugin's registrations, and its panel."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from kubeletx_flexvolume.config import FlexSettings
from kubeletx_flexvolume.plugin import (
    ATTACHMENTS,
    NAME,
    PANEL,
    kubeletx_register_panels,
    kubeletx_register_volume_drivers,
    make_attachments,
    make_driver,
    make_panel,
)

from kubeletx.api import ENTRY_POINT_GROUP, Table, Unavailable
from kubeletx.testing import FakePluginHost, FakeVolumeHost
from kubeletx_testing.waiting import until
from plugins.flexvolume.tests.host.flex_model import DRIVER, FlexNode, failure, says


def test_it_is_found_by_its_entry_point() -> None:
    (found,) = [one for one in entry_points(group=ENTRY_POINT_GROUP) if one.name == "flexvolume"]
    assert found.load().kubeletx_register_volume_drivers is kubeletx_register_volume_drivers


def test_it_registers_a_volume_driver_and_two_panels_of_different_names() -> None:
    registered: list[tuple[str, Any, dict[str, Any]]] = []

    def register(name: str, factory: Any, **what: Any) -> None:
        registered.append((name, factory, what))

    kubeletx_register_volume_drivers(register)
    kubeletx_register_panels(register)
    driver, panel, attachments = registered
    assert driver == (NAME, make_driver, {"sources": ("flexVolume",), "settings": FlexSettings})
    assert panel[:2] == (PANEL, make_panel)
    assert attachments[:2] == (ATTACHMENTS, make_attachments)
    assert len({NAME, PANEL, ATTACHMENTS}) == 3


def test_registering_loads_no_module_that_calls_drivers() -> None:
    code = "import sys, kubeletx_flexvolume.plugin as p; sys.exit('kubeletx_flexvolume.host' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_making_a_driver_and_a_panel_does_no_io(tmp_path: Path) -> None:
    make_driver(None, FakeVolumeHost(tmp_path / "none"))
    make_panel(None, FakePluginHost(tmp_path / "none"))
    assert list(tmp_path.iterdir()) == []


async def test_a_driver_that_is_not_open_says_so(flex: FlexNode) -> None:
    volumes = flex.make()
    with pytest.raises(Unavailable, match="not open"):
        await volumes.prepare(flex.request())
    await volumes.close()


async def test_the_panel_shows_drivers_with_their_calls_and_last_error(
    flex: FlexNode, tmp_path: Path
) -> None:
    panel_state = flex.host.state_directory.parent / PANEL
    panel_state.mkdir()
    flex.host.state_directory = flex.host.state_directory.rename(tmp_path / NAME)
    panel = make_panel(None, FakePluginHost(panel_state))
    assert await panel.show() == Table(
        columns=("DRIVER", "STATE", "CAPABILITIES", "CALLS", "FAILED", "LAST ERROR")
    )
    flex.install_plain(mount=says(failure("no luck"), 1), unmount=says(failure("not mounted"), 1))
    flex.install_plain("example.com/other", init=says(failure("no server"), 1))
    volumes = await flex.open()
    with pytest.raises(Unavailable, match="no luck"):
        await volumes.prepare(flex.request())

    async def rows() -> tuple[tuple[str, ...], ...]:
        shown = await panel.show()
        assert isinstance(shown, Table)
        return shown.rows

    expected = {
        DRIVER: ("ready", "fsGroup selinuxRelabel requiresFSResize", "3", "2"),
        "example.com/other": ("failed", "attach fsGroup selinuxRelabel requiresFSResize", "1", "1"),
    }
    status = flex.host.state_directory / "drivers.json"
    await until(lambda: status.exists() and b"not mounted" in status.read_bytes())
    found = {row[0]: row[1:] for row in await rows()}
    assert {name: row[:4] for name, row in found.items()} == expected
    assert found["example.com/other"][4].endswith("init failed: 'no server'")
    status.write_text("{")
    assert await rows() == ()
