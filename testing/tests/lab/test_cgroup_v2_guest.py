"""The result of a run in a guest."""

from __future__ import annotations

from pathlib import Path

import pytest

from kubeletx_testing.lab.cgroup_v2_guest import GuestRun, run_emulator


@pytest.mark.parametrize(
    ("script", "found"),
    [
        ("echo crashed", GuestRun(None, "", "crashed\n")),
        ("echo 3 >status; echo said >output", GuestRun(3, "said\n", "")),
    ],
)
def test_what_an_earlier_run_left_in_the_directory_is_not_taken_for_the_result(
    tmp_path: Path, script: str, found: GuestRun
) -> None:
    for name, text in (("status", "0\n"), ("output", "earlier\n"), ("console.log", "earlier\n")):
        (tmp_path / name).write_text(text)
    emulator = ["sh", "-c", f"cd {tmp_path} && {{ {script}; }}"]
    assert run_emulator(emulator, tmp_path, timeout_seconds=60) == found
