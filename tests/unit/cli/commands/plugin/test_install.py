"""``kubeletx plugin install`` and ``remove`` change the environment of the agent, with that environment's pip."""

from __future__ import annotations

import importlib.util
import sys
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kubeletx.api import Conflict
from kubeletx.cli.commands.plugin.environment import PythonEnvironment, check_pip, read_environment

Run = Callable[..., Result]


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """A virtual environment with the pip of this one."""
    place = tmp_path / "environment"
    venv.create(place, with_pip=False, symlinks=True)
    pip = importlib.util.find_spec("pip")
    assert pip is not None
    assert pip.submodule_search_locations is not None
    (packages,) = place.glob("lib/python*/site-packages")
    (packages / "pip").symlink_to(pip.submodule_search_locations[0])
    (
        packages / "other.pth"
    ).touch()  # pip removes a directory in which only files of the removed distribution are
    return place


def wheel(folder: Path, version: str = "0.1.0", *, entry_point: str = "tea = kubeletx_tea") -> Path:
    info = f"kubeletx_tea-{version}.dist-info"
    files = {
        "kubeletx_tea.py": "",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: kubeletx-tea\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[kubeletx]\n{entry_point}\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = folder / f"kubeletx_tea-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in [*files.items(), (f"{info}/RECORD", record)]:
            archive.writestr(name, text)
    return path


def serve_from(agent: Any, environment: Path) -> None:
    agent.backend.python = str(environment / "bin" / "python")


def install(kubeletx: Run, path: Path) -> Result:
    return kubeletx("plugin", "install", str(path), "--", "--no-index", "--quiet")


def test_a_plugin_is_installed_for_the_running_agent_and_removed_again(
    agent: Any, kubeletx: Run, environment: Path, tmp_path: Path
) -> None:
    serve_from(agent, environment)
    result = install(kubeletx, wheel(tmp_path))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"plugin/tea installed (kubeletx-tea 0.1.0) in {environment}",
        "Run 'kubeletx runtime reload', so that the agent loads it.",
    ]
    result = install(kubeletx, wheel(tmp_path, "0.2.0"))
    assert result.stdout.splitlines() == [
        f"plugin/tea installed (kubeletx-tea 0.2.0) in {environment}",
        "The agent runs on with the version that it has loaded; restart it.",
    ]
    result = kubeletx("plugin", "remove", "tea")
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"plugin/tea removed (kubeletx-tea 0.2.0) from {environment}",
        "The agent keeps what it has loaded; restart it.",
    ]
    assert read_environment(str(environment / "bin" / "python")).plugins == ()


def test_a_source_in_the_working_directory_is_installed_by_its_name(
    agent: Any, kubeletx: Run, environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    serve_from(agent, environment)
    source = tmp_path / "kubeletx-tea"
    source.mkdir()
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    made = wheel(tmp_path)
    (source / "backend.py").write_text(
        "import shutil\n"
        "def build_wheel(directory, *settings):\n"
        f"    shutil.copy({str(made)!r}, directory)\n"
        f"    return {made.name!r}\n"
    )
    monkeypatch.chdir(tmp_path)
    result = install(kubeletx, Path("kubeletx-tea"))
    assert "plugin/tea installed (kubeletx-tea 0.1.0)" in result.output


def test_a_distribution_that_is_not_a_plugin_gets_a_warning(
    agent: Any, kubeletx: Run, environment: Path, tmp_path: Path
) -> None:
    serve_from(agent, environment)
    result = install(kubeletx, wheel(tmp_path, entry_point=""))
    assert (result.exit_code, result.stdout) == (0, "")
    assert "brought no new plugin" in result.stderr


def test_an_error_of_pip_is_the_error_of_the_command(
    agent: Any, kubeletx: Run, environment: Path, tmp_path: Path
) -> None:
    serve_from(agent, environment)
    result = install(kubeletx, tmp_path / "kubeletx_none-1-py3-none-any.whl")
    assert result.exit_code == 1
    assert "pip install failed with exit code 1" in result.stderr


def test_a_plugin_that_is_not_installed_cannot_be_removed(
    agent: Any, kubeletx: Run, environment: Path
) -> None:
    serve_from(agent, environment)
    result = kubeletx("plugin", "remove", "coffee")
    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: plugin 'coffee' is not installed in {environment}; installed are: none\n",
    )


def test_without_an_agent_the_environment_of_the_command_is_meant(kubeletx: Run) -> None:
    result = kubeletx("plugin", "remove", "coffee")
    assert f"is not installed in {sys.prefix}; installed are: " in result.stderr
    assert "containerd" in result.stderr


def test_an_interpreter_that_does_not_run_is_named(agent: Any, kubeletx: Run, tmp_path: Path) -> None:
    serve_from(agent, tmp_path)
    result = kubeletx("plugin", "install", "tea")
    assert result.exit_code == 1
    assert f"the Python interpreter {tmp_path}/bin/python of the agent does not run" in result.stderr


def test_an_environment_without_pip_says_what_to_do() -> None:
    environment = PythonEnvironment(prefix="/opt/kx", has_pip=False, is_managed=False)
    with pytest.raises(Conflict, match=r"/opt/kx has no pip; run '/opt/kx/bin/python -m ensurepip'"):
        check_pip(environment, "/opt/kx/bin/python")


def test_an_environment_of_the_system_says_what_to_do() -> None:
    environment = PythonEnvironment(prefix="/usr", has_pip=True, is_managed=True)
    with pytest.raises(Conflict, match=r"/usr: the system's package manager owns it.*virtual environment"):
        check_pip(environment, "/usr/bin/python3")


def test_the_list_is_that_of_kubeletx_plugins(agent: Any, kubeletx: Run) -> None:
    assert kubeletx("plugin", "list").stdout == kubeletx("plugins").stdout
