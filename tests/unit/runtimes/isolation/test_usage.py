"""Memory and CPU time of a child process."""

from __future__ import annotations

import os
from pathlib import Path

from kubeletx.runtimes.isolation.process import usage_of


def test_usage_is_read_although_the_name_holds_spaces_and_parentheses(tmp_path: Path) -> None:
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    fields = ["S", *("0" for _ in range(10)), str(3 * ticks), str(ticks), *("0" for _ in range(8)), "12"]
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_text(f"7 (a) b (c) {' '.join(fields)} 0 0\n")
    usage = usage_of(7, 2, tmp_path)
    assert usage is not None
    assert (usage.pid, usage.cpu_seconds, usage.memory_bytes, usage.restarts) == (7, 4.0, 12 * page, 2)


def test_an_ended_process_has_no_usage(tmp_path: Path) -> None:
    assert usage_of(7, 0, tmp_path) is None
