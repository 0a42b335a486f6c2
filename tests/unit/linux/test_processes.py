"""State, time and memory of processes as the kernel shows them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kubeletx.linux.processes import ENDED, read_stat


def test_this_process_is_read() -> None:
    stat = read_stat("self")
    assert stat is not None
    assert (stat.parent, stat.group) == (os.getppid(), os.getpgrp())
    assert stat.cpu_ticks > 0
    assert 0 < stat.resident_bytes < stat.virtual_bytes


def test_a_name_with_brackets_and_blanks_is_read(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    fields = " ".join(map(str, range(1, 50)))
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) S {fields}\n")
    stat = read_stat(7, tmp_path)
    assert stat is not None
    assert (stat.name, stat.state, stat.parent, stat.group) == ("a) b (c", "S", 1, 2)
    assert (stat.cpu_ticks, stat.children_ticks, stat.started_ticks) == (11 + 12, 13 + 14, 19)


@pytest.mark.parametrize("text", ["", "7 (cat)", "7 (cat) S 1 2"])
def test_what_is_not_whole_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(text)
    assert read_stat(7, tmp_path) is None


def test_a_process_that_has_ended_is_a_zombie_until_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        stat = read_stat(process.pid)
        assert stat is not None
        assert stat.state in ENDED
    assert read_stat(process.pid) is None
