"""Runs mypy on the packages of a plugin."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tomllib
from pathlib import Path

MYPY_SECONDS = 600.0
LONGEST_OUTPUT = 20


def has_mypy() -> bool:
    """Return True if mypy is installed."""
    return importlib.util.find_spec("mypy") is not None


def type_errors(packages: set[str], tree: Path | None) -> list[str]:
    """Return the errors of mypy in the installed packages, one line each; empty: there are none.

    `tree`: the source tree, whose ``[tool.mypy]`` is used if it has one; None: not known. Without it, functions without
    annotations are checked too.
    """
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    if not _has_config(tree):
        command += ["--config-file=", "--check-untyped-defs", "--disable-error-code=type-abstract"]
    for package in sorted(packages):
        command += ["-p", package]
    environment = dict(os.environ)
    if tree is None:
        environment.setdefault("MYPY_CACHE_DIR", os.devnull)
    elif (tree / "src").is_dir():
        environment["MYPYPATH"] = str(tree / "src")
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=environment,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            capture_output=True,
            text=True,
            timeout=MYPY_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"mypy did not end within {MYPY_SECONDS:g} s"]
    lines = [line for line in (done.stdout + done.stderr).splitlines() if ": note: " not in line]
    return lines[:LONGEST_OUTPUT] if done.returncode else []


def _has_config(tree: Path | None) -> bool:
    if tree is None:
        return False
    try:
        return "mypy" in tomllib.loads((tree / "pyproject.toml").read_text("utf-8")).get("tool", {})
    except (OSError, ValueError):
        return False
