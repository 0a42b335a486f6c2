"""Sizes of snapshots are read from the disk itself; what is no such disk has none."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from kubeletx_libvirt.images.qcow2 import read_snapshot_sizes

TABLE = 4096


def entry(name: str, low: int, extra: bytes) -> bytes:
    head = struct.pack(">QIHHIIQII", 0, 0, 1, len(name), 0, 0, 0, low, len(extra))
    made = head + extra + b"1" + name.encode()
    return made.ljust(-(-len(made) // 8) * 8, b"\0")


def disk(count: int, table: bytes) -> bytes:
    header = struct.pack(">4s56xIQ", b"QFI\xfb", count, TABLE)
    return header.ljust(TABLE, b"\0") + table


def test_the_memory_of_each_snapshot_is_found(tmp_path: Path) -> None:
    big = struct.pack(">QQ", 5 << 32, 0)
    table = entry("whole", 7, big) + entry("old", 300, b"") + entry("disk", 0, bytes(16))
    path = tmp_path / "a.qcow2"
    path.write_bytes(disk(3, table))
    assert read_snapshot_sizes(str(path)) == {"whole": 5 << 32, "old": 300, "disk": 0}


@pytest.mark.parametrize(
    "content",
    [b"", b"QFI\xfb", disk(0, b""), disk(4, b""), disk(1 << 31, b"\xff" * 64), b"no disk at all" * 100],
)
def test_what_cannot_be_read_has_no_sizes(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.qcow2"
    path.write_bytes(content)
    assert read_snapshot_sizes(str(path)) == {}
    assert read_snapshot_sizes(str(tmp_path / "none")) == {}
