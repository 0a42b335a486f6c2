"""script/setup: what it installs after a change."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

SCRIPTS = Path(__file__).parents[3] / "script"
PYTHON = f"""#!/bin/bash
if [ "$1 $2" != "-m pip" ]; then exec {sys.executable} "$@"; fi
if [ "$3" = install ]; then for word in "$@"; do case "$word" in /*) echo "$word" >>pip.log ;; esac; done; fi
"""
"""A Python whose pip writes down what it is to install."""


def test_only_what_changed_is_installed_again(tmp_path: Path) -> None:
    root, plugin, log = tmp_path, tmp_path / "plugins" / "a", tmp_path / "pip.log"
    (root / "script").mkdir()
    for name in ("setup", "_common.sh"):
        shutil.copy(SCRIPTS / name, root / "script")
    python = root / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text(PYTHON)
    python.chmod(0o755)
    plugin.mkdir(parents=True)

    def installed(path: Path, text: str) -> list[str]:
        path.write_text(text)
        log.write_text("")
        command = ["bash", "script/setup", "--python-only"]
        environment = {key: value for key, value in os.environ.items() if key != "KUBELETX_VENV"}
        done = subprocess.run(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            check=False, timeout=60, start_new_session=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return log.read_text().split()

    (root / "constraints.txt").write_text("a==1\n")
    (root / "pyproject.toml").write_text("[project]\nname = 'host'\n")
    host = f"{root}[dev]"
    project = "[project]\nname = 'a'\n"
    assert installed(plugin / "pyproject.toml", project) == [host, str(plugin)]
    assert (
        installed(root / "pyproject.toml", "[project]\nname = 'host'\n[tool.ruff]\nline-length = 1\n") == []
    )
    assert installed(plugin / "pyproject.toml", f"{project}dependencies = ['b']\n") == [str(plugin)]
    assert installed(root / "constraints.txt", "a==2\n") == [host, str(plugin)]
    (plugin / "pyproject.toml").unlink()
    assert installed(root / "constraints.txt", "a==2\n") == [host]
