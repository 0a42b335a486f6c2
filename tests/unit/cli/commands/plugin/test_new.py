"""``kubeletx plugin new`` writes a whole distribution for each kind of plugin."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeletx.cli.commands.plugin.scaffold import KINDS, required_range
from kubeletx.cli.main import cli
from kubeletx.cli.options.exit_codes import ExitCode
from kubeletx.plugins.loading import load_plugins
from tests.unit.docs.pages import ROOT


def write(directory: Path, name: str, *options: str) -> Result:
    return CliRunner().invoke(cli, ["plugin", "new", name, "--directory", str(directory), *options])


def test_the_author_s_own_pytest_runs_the_tests_of_a_new_plugin(tmp_path: Path) -> None:
    """Its settings are the same for each kind. That each kind passes is shown with ``kubeletx plugin check``."""
    directory = tmp_path / "made"
    result = write(directory, "green-tea", "--kind", "panel")
    assert result.exit_code == ExitCode.OK, result.output
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(directory)],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory / "src")},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 3


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_a_new_plugin_have_no_placeholder_left(kind: str, tmp_path: Path) -> None:
    write(tmp_path, "tea", "--kind", kind)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"pyproject.toml", "README.md", "ci.sh", ".gitignore", "py.typed"} <= {path.name for path in files}
    left = {path.name: re.findall(r"@[A-Z]+@", path.read_text()) for path in files}
    assert {name: found for name, found in left.items() if found} == {}
    assert all(path.read_text().endswith("\n") or path.name == "py.typed" for path in files)
    assert (tmp_path / "ci.sh").stat().st_mode & 0o111
    assert "| capability | state |" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_a_new_plugin_names_the_page_of_its_hook(kind: str, tmp_path: Path) -> None:
    page = KINDS[kind].page
    assert f"Read:       {page}" in write(tmp_path, "tea", "--kind", kind).output
    assert f"`{page}`" in (tmp_path / "README.md").read_text()
    assert (ROOT / page).is_file()


@pytest.mark.parametrize("kind", KINDS)
def test_the_agent_loads_a_new_plugin(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = f"made-{kind}"
    write(tmp_path, name, "--kind", kind)
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    ((entry, module),) = project["entry-points"]["kubeletx"].items()
    monkeypatch.syspath_prepend(tmp_path / "src")
    (loaded,) = load_plugins([EntryPoint(entry, module, "kubeletx")]).loaded
    assert (loaded.name, loaded.state, loaded.reason) == (name, "ready", "")
    names = [*loaded.kinds, *(one.name for one in loaded.registrations)]
    assert names == [name]


def test_the_requirement_has_an_upper_bound(tmp_path: Path) -> None:
    write(tmp_path, "tea")
    project = tomllib.loads((tmp_path / "pyproject.toml").read_text())["project"]
    assert project["dependencies"] == ["kubeletx>=0.1,<0.2"]
    assert [required_range(version) for version in ("0.1.0", "0.9.7", "1.12.0rc1")] == [
        ">=0.1,<0.2",
        ">=0.9,<0.10",
        ">=1.12,<1.13",
    ]


@pytest.mark.parametrize("name", ["", "Tea", "9tea", "tea-", "a--b", "tea_time", "../tea", "t" * 41])
def test_a_name_that_cannot_be_registered_is_refused(name: str, tmp_path: Path) -> None:
    result = write(tmp_path / "made", name)
    assert result.exit_code == ExitCode.USAGE
    assert "is not a name" in result.output
    assert not (tmp_path / "made").exists()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    result = write(tmp_path, "tea")
    assert "is not empty; choose another --directory" in result.output
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
