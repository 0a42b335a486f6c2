"""script/package: its wheels, its zipapp."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[3]
DISTRIBUTIONS = {"kubeletx", *(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml")), "session"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    command = ["bash", "script/package", "--zipapp", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=230)
    assert done.returncode == 0, done.stderr
    return out


def names(dist: Path, distribution: str) -> set[str]:
    (wheel,) = dist.glob(f"{distribution}-*.whl")
    with ZipFile(wheel) as file:
        return set(file.namelist())


def test_every_distribution_has_a_wheel_with_its_license(dist: Path) -> None:
    wheels = {path.name.split("-")[0] for path in dist.glob("*.whl")}
    assert {name.removeprefix("kubeletx_") for name in wheels} == DISTRIBUTIONS
    for wheel in wheels:
        assert f"{wheel}-0.1.0.dist-info/licenses/LICENSE" in names(dist, wheel)


def test_the_host_has_what_setup_and_operators_take_from_it(dist: Path) -> None:
    share = {name.removeprefix("kubeletx/share/") for name in names(dist, "kubeletx") if "/share/" in name}
    deployed = {
        str(path.relative_to(ROOT / "deploy")) for path in (ROOT / "deploy").rglob("*") if path.is_file()
    }
    completions = {f"completions/kubeletx.{shell}" for shell in ("bash", "zsh", "fish")}
    assert {one for one in deployed if "exchanges" not in one} | completions <= share
    assert not any("exchanges" in one for one in share)


def test_the_zipapp_has_all_plugins(dist: Path) -> None:
    archive = dist / "kubeletx.pyz"
    with ZipFile(archive) as file:
        found = {name.split("/")[0] for name in file.namelist() if name.endswith("entry_points.txt")}
    assert len(found) == 5
    command = [sys.executable, "-I", str(archive), "completion", "bash"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert "_KUBELETX_COMPLETE" in done.stdout, done.stderr
