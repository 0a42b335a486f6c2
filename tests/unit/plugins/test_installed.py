"""Damaged metadata of a distribution cost its own plugins and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubeletx.agent.config.tree import PluginSettings
from kubeletx.plugins.installed import origin_of
from kubeletx.plugins.loading import load_plugins
from kubeletx.plugins.reload import RunningPlugins
from tests.unit.plugins.plugin_sites import Site

META = "Metadata-Version: 2.1\n"


def without_metadata(info: Path) -> None:
    (info / "METADATA").unlink()


def without_name(info: Path) -> None:
    (info / "METADATA").write_text(f"{META}Version: 1.0\n")


def without_version(info: Path) -> None:
    (info / "METADATA").write_text(f"{META}Name: x\n")


def with_wrong_bytes(info: Path) -> None:
    (info / "METADATA").write_bytes(f"{META}Name: x\nVersion: 1.0\nAuthor: \xe9\n".encode("latin-1"))


def with_wrong_bytes_in_entry_points(info: Path) -> None:
    (info / "entry_points.txt").write_bytes(b"[kubeletx]\nx = site_x.plugin\n# \xff\n")


def without_equals_sign(info: Path) -> None:
    (info / "entry_points.txt").write_text("[kubeletx]\nx\n")


def without_object(info: Path) -> None:
    (info / "entry_points.txt").write_text("[kubeletx]\nx = site_x.plugin:\n")


DAMAGES: dict[Callable[[Path], None], str] = {
    without_metadata: "METADATA is missing",
    without_name: "METADATA has no Name",
    without_version: "METADATA has no Version",
    with_wrong_bytes: "METADATA: UnicodeDecodeError",
    with_wrong_bytes_in_entry_points: "entry_points.txt: UnicodeDecodeError",
    without_equals_sign: "entry_points.txt: ",
    without_object: "the entry point names no module",
}


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(str(made.path))
    made.install_plugin("good")
    made.install_plugin("x")
    yield made
    made.close()
    made.forget()


def info_of(site: Site) -> Path:
    return site.path / "x-1.0.dist-info"


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_plugin_with_damaged_metadata_is_failed_with_the_path(
    site: Site, damage: Callable[[Path], None]
) -> None:
    damage(info_of(site))
    for disabled in ((), ("x",)):
        states = {one.name: one for one in load_plugins(disabled=disabled).loaded}
        assert states["good"].state == "ready"
        assert states["containerd"].state == "ready"
        assert states["x"].state == ("disabled" if disabled else "failed")
    failed = {one.name: one for one in load_plugins().loaded}["x"]
    assert DAMAGES[damage] in failed.reason
    assert str(info_of(site)) in failed.reason
    assert failed.distribution == "x"


@pytest.mark.parametrize("damage", DAMAGES)
async def test_a_reload_and_the_search_for_a_fault_go_on(site: Site, damage: Callable[[Path], None]) -> None:
    running = RunningPlugins(
        load_plugins([]), on_settings=lambda *_: None, find=site.plugins, settings=PluginSettings()
    )
    site.at_end.append(running.close)
    damage(info_of(site))
    assert {one.name: one.state for one in (await running.reload()).plugins} == {
        "good": "ready",
        "x": "failed",
    }
    assert origin_of(ValueError())[0] is None


def test_damaged_metadata_of_a_distribution_without_plugins_are_ignored(site: Site) -> None:
    info = info_of(site)
    without_name(info)
    (info / "entry_points.txt").write_bytes(b"[console_scripts]\nx = y:z\n# \xff\n")
    assert [one.name for one in site.plugins()] == ["good"]
    (info / "entry_points.txt").write_text("[console_scripts]\nx\n")
    assert [one.name for one in site.plugins()] == ["good"]


def test_metadata_may_vanish_after_the_entry_points_were_read(site: Site) -> None:
    points = site.entry_points()
    shutil.rmtree(info_of(site))
    states = {one.name: one for one in load_plugins(points).loaded}
    assert states["good"].state == "ready"
    assert "METADATA is missing" in states["x"].reason


def test_what_an_interrupted_uninstall_left_does_not_hide_the_installed_version(site: Site) -> None:
    for version in ("0.1", "9.9"):
        old = site.path / f"x-{version}.dist-info"
        shutil.copytree(info_of(site), old)
        without_metadata(old)
    assert [(one.name, one.version, one.reason) for one in site.plugins()] == [
        ("good", "1.0", ""),
        ("x", "1.0", ""),
    ]
