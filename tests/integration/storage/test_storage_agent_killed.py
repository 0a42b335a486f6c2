"""SIGKILL of the storage agent before, during and after every step: nothing leaks, no data is lost, nothing is mounted twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.storage.storage_agent import loop_files, storage_daemons

ROOT = Path(__file__).resolve().parents[3]
JOURNAL = ("journal put", "journal remove")
RECORDS = ("record take", "record note", "record release")
LOOP = ("program losetup", "program blkid", "program mount", "program umount")
BLANK = ("program wipefs", "program mkfs.ext4")
FUSE = ("program qemu-storage-daemon", "program fsck.ext4")


@pytest.mark.parametrize(
    ("backend", "content", "steps"),
    [("loop", "fresh", (*LOOP, *BLANK)), ("fuse", "kept", (*LOOP, *FUSE))],
)
def test_an_agent_killed_at_any_moment_is_followed_by_one_that_completes_or_undoes(
    tmp_path: Path, backend: str, content: str, steps: tuple[str, ...]
) -> None:
    """`fresh`: a new volume, which is formatted. `kept`: a volume with data."""
    module = "tests.integration.storage.killed_storage_agent"
    command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", module]
    done = subprocess.run(
        [*command, str(tmp_path), backend, content], cwd=ROOT, capture_output=True, check=False
    )
    assert done.returncode == 0, f"{done.stderr.decode()}\n{(tmp_path / 'log').read_text()[-5000:]}"
    result = json.loads(done.stdout)
    assert result["problems"] == []
    points = set(result["points"])
    for step in (*JOURNAL, *RECORDS, *steps):
        assert {f"before {step}", f"after {step}"} <= points
        assert not step.startswith("program") or f"during {step}" in points
    assert [file for _, file in loop_files() if file.startswith(str(tmp_path))] == []
    assert storage_daemons(tmp_path) == []
