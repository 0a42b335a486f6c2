"""What a reclaim writes and reports, and where it cannot be done."""

from __future__ import annotations

from pathlib import Path

import pytest
from kubeletx_quark.reclaim import Reclaimed, reclaim

from kubeletx.api import NotFound, Unsupported


def test_version_1_empties_and_version_2_reclaims_the_present_usage(tmp_path: Path) -> None:
    for name, text in {
        "memory.usage_in_bytes": "4096",
        "memory.force_empty": "-",
        "memory.stat": "rss 1\nswap 7\n",
        "memory.current": "8192",
        "memory.reclaim": "-----",
        "memory.swap.current": "9",
    }.items():
        (tmp_path / name).write_text(text)
    assert reclaim(tmp_path, 1) == Reclaimed(before_bytes=4096, after_bytes=4096)
    assert (tmp_path / "memory.force_empty").read_text() == "0"
    assert reclaim(tmp_path, 2) == Reclaimed(before_bytes=8192, after_bytes=8192)
    assert (tmp_path / "memory.reclaim").read_text().startswith("8192")


def test_growth_in_the_meantime_is_nothing_given_back() -> None:
    assert Reclaimed(before_bytes=10, after_bytes=12).freed_bytes == 0
    assert Reclaimed(before_bytes=12, after_bytes=10).freed_bytes == 2


def test_a_kernel_without_the_file_and_a_cgroup_that_is_gone_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "memory.current").write_text("8192")
    with pytest.raises(Unsupported, match=r"memory.reclaim does not exist on this node"):
        reclaim(tmp_path, 2)
    assert not (tmp_path / "memory.reclaim").exists()
    with pytest.raises(NotFound, match="is gone"):
        reclaim(tmp_path / "gone", 2)
