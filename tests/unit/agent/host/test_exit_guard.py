"""The limit of the guard holds for exit functions of plugins too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kubeletx.agent.host.exit_guard import UNCLEAN_EXIT_CODE

CODE = """
import atexit, sys, time
from pathlib import Path
from kubeletx.agent.host.exit_guard import ExitGuard

guard = ExitGuard(float(sys.argv[2]), Path(sys.argv[1]))
if sys.argv[3] == "sleeps":
    atexit.register(time.sleep, 3600)
guard.begin()
guard.finish()
"""


@pytest.mark.parametrize(
    ("what", "seconds", "code"), [("sleeps", 0.2, UNCLEAN_EXIT_CODE), ("nothing", 600, 0)]
)
def test_an_exit_function_that_sleeps_does_not_hold_up_the_end(
    tmp_path: Path, what: str, seconds: float, code: int
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, str(tmp_path), str(seconds), what],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
