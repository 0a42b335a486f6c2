"""script/demo --once, as a newcomer runs it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from kubeletx_testing.lab import leftovers

ROOT = Path(__file__).parents[3]


def standby_mebibytes(output: str) -> tuple[float, ...]:
    """Memory of the demo's pod while it runs, when it is hibernated, and when it is hibernated again."""
    rows = ("it runs", "kx pod standby --hibernate", "the connection ends")
    found = [re.search(rf"^{row} +([\d.]+) MiB", output, re.MULTILINE) for row in rows]
    assert all(found), output
    return tuple(float(one[1]) for one in found if one is not None)


@pytest.mark.timeout(300)
def test_the_demo_runs_containers_and_a_machine_where_they_asked_to_be_and_leaves_nothing() -> None:
    done = subprocess.run(
        ["bash", "script/demo", "--once"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "COLUMNS": "160"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every pod is where it asked to be" in done.stdout
    assert re.search(r"machine-demo +libvirt-qemu +libvirt-qemu +Running +1/1 +0 +[0-9.]+", done.stdout)
    assert "hello from guest" in done.stdout
    assert re.search(r"web-a-demo +machine-demo +guest", done.stdout)
    assert re.search(r"machine-demo +web-a-demo +served by containerd-a", done.stdout)
    before, after, again = standby_mebibytes(done.stdout)
    assert before > 40
    assert after < before / 2
    assert again < before / 2
    assert re.search(r"curl http://127\.0\.0\.1:\d+/ +'catalog of the demo', \d+ ms later", done.stdout)
    assert re.search(
        r"kx describe pod says:\n  Hibernated since .*memory: [\d.]+ MiB before, [\d.]+ MiB after",
        done.stdout,
    )
    assert re.search(r"writer-demo +containerd-a +written by writer-demo", done.stdout)
    assert re.search(r"reader-demo +containerd-b +written by writer-demo", done.stdout)
    assert re.search(r"reader-demo/notes +kubeletx\.io/storage .*ready", done.stdout)
    assert "reader-demo is gone, with mount, device and attachment" in done.stdout
    assert "machine-demo is gone, with emulator, disk and address" in done.stdout
    assert "nothing is left" in done.stdout
    assert leftovers(ROOT / ".demo" / "lab") == []
