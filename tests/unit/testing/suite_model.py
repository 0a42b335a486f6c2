"""Runs a file of tests in a pytest process of its own, as an author's pytest would."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


def selection(chosen: Mapping[str, str]) -> str:
    """Return the expression that chooses tests of several classes. `chosen`: the expression of each; empty: all."""
    return " or ".join(f"({name} and ({tests}))" if tests else name for name, tests in chosen.items())


def failures(output: str, name: str) -> list[str]:
    """Return the text of each failure of a class, without the line with the name of the test."""
    return re.findall(
        rf"^_+ (?:ERROR at \w+ of )?{name}\.test_\w+ _+$(.*?)(?=^_+ |^=+ )", output, re.MULTILINE | re.DOTALL
    )


def run_file(directory: Path, text: str, chosen: str = "") -> subprocess.CompletedProcess[str]:
    """Write `text` to a test file in `directory` and run it. `chosen`: expression that chooses tests; empty: all."""
    file = directory / "test_bad.py"
    file.write_text(text)
    command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(directory)]
    command += [
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-o",
        "asyncio_mode=auto",
        "-k",
        chosen,
        str(file),
    ]
    # With CI set, pytest writes each message once more, whole, in its summary.
    others = ("CI", "BUILD_NUMBER", "PYTEST_ADDOPTS")
    environment = {name: value for name, value in os.environ.items() if name not in others}
    return subprocess.run(
        command, capture_output=True, text=True, timeout=100, check=False, cwd=Path.cwd(), env=environment
    )
