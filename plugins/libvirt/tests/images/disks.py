"""Small disks for the tests, made byte by byte."""

from __future__ import annotations

import struct
from typing import Any

CLUSTER = 1 << 16


def qcow2(
    *,
    size: int = 1 << 20,
    version: int = 3,
    backing: tuple[int, int] = (0, 0),
    crypt: int = 0,
    incompatible: int = 0,
    extensions: bytes = b"",
    clusters: int = 2,
    fill: bytes = b"x",
    **fields: Any,
) -> bytes:
    """A qcow2 file: header, reference table and block, table 1, table 2, then `clusters` of data."""
    header = struct.pack(
        ">4sIQIIQIIQQIIQ",
        b"QFI\xfb",
        version,
        *backing,
        fields.get("bits", 16),
        size,
        crypt,
        fields.get("l1_entries", 1),
        fields.get("l1", 3 * CLUSTER),
        CLUSTER,
        1,
        0,
        0,
    )
    if version == 3:
        header += struct.pack(">QQQII", incompatible, 0, 0, 4, 104)
    header += extensions + struct.pack(">II", 0, 0)
    first = 5 * CLUSTER
    table = b"".join(struct.pack(">Q", (first + i * CLUSTER) | 1 << 63) for i in range(clusters))
    parts = [
        header,
        struct.pack(">Q", 2 * CLUSTER),
        struct.pack(">H", 1) * (5 + clusters),
        struct.pack(">Q", 4 * CLUSTER | 1 << 63),
        table,
    ]
    return b"".join(part.ljust(CLUSTER, b"\0") for part in parts) + fill * CLUSTER * clusters


def raw(size: int = 1 << 20, *, mark: bytes = b"disk") -> bytes:
    """A raw disk with a boot signature and something to tell it by."""
    return (mark.ljust(510, b"\x90") + b"\x55\xaa").ljust(size, b"\0")
