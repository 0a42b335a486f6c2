"""The walks of script/newcomers, with the quickstart as written; each ends with nothing left."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from kubeletx_testing.lab import Lab
from script.walks.walk import Walk
from script.walks.walks import WALKS

ROOT = Path(__file__).parents[3]
LONG = sorted(WALKS.keys() - {"frozen"})


def test_the_quickstart_has_a_first_pod_and_a_frozen_pod(lab: Lab) -> None:
    said: list[str] = []
    walk = Walk(lab, "frozen", said.append)
    WALKS["frozen"](walk)
    assert walk.seconds is not None
    assert any("kubeletx pod standby nap --hibernate" in line for line in said)
    assert not walk.root_dir.exists()


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LONG)
def test_a_newcomer_has_a_first_success_within_five_minutes(name: str) -> None:
    command = ["bash", "script/newcomers", name]
    done = subprocess.run(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        capture_output=True,
        text=True,
        timeout=850,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{name} " in done.stdout.splitlines()[-1]
