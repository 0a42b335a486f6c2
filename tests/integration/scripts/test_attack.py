"""script/attack in its short form: few rounds of each attack, with a fixed seed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from kubeletx_testing.lab.tools import daemon_environment

ROOT = Path(__file__).resolve().parents[3]
ATTACKS = ("manifests", "runtime", "kills", "requests", "images")

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]


@pytest.mark.parametrize("name", ATTACKS)
def test_the_agent_holds_against_a_short_attack(name: str) -> None:
    done = _attack("--short", "--seed=7", f"--only={name}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name}: held" in done.stdout


def test_every_attack_is_tested() -> None:
    assert tuple(_attack("--list").stdout.split()) == ATTACKS


def _attack(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "script.attacks.main", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=380,
        env=daemon_environment(),
        check=False,
    )
