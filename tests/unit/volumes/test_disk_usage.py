"""What directories take of the disk."""

from __future__ import annotations

import os
from pathlib import Path

from kubeletx.volumes.disk_usage import DiskUse, add_up, measure


def test_blocks_and_inodes_are_counted_once_for_each_file(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "file").write_bytes(b"x" * 100_000)
    os.link(tree / "below" / "file", tree / "again")
    (tree / "link").symlink_to(tmp_path)
    (tree / "sparse").touch()
    os.truncate(tree / "sparse", 1 << 30)
    found = measure(tree)
    assert found.inodes == 5
    assert 100_000 <= found.bytes < 1 << 20


def test_a_file_counts_by_itself_and_what_is_missing_is_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 5000)
    assert measure(tmp_path / "file").inodes == 1
    assert measure(tmp_path / "missing") == DiskUse()
    assert add_up([DiskUse(bytes=1, inodes=2), DiskUse(bytes=3)]) == DiskUse(bytes=4, inodes=2)


def test_what_is_mounted_below_counts_elsewhere() -> None:
    assert measure(Path("/dev")).bytes < 1 << 20  # /dev/shm and the like are other file systems
