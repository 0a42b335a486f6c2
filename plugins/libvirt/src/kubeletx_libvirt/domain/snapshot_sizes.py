"""Memory sizes of the internal snapshots of a qcow2 disk.

libvirt does not report them. Only the header and the snapshot table of the disk are read, so QEMU may have it
open. Source: QEMU, docs/interop/qcow2.txt, snapshot table.
"""

from __future__ import annotations

import os
import struct

_HEADER = struct.Struct(">4s56xIQ")
"""Magic, number of snapshots, offset of their table."""
_ENTRY = struct.Struct(">12xHH16xII")
"""Lengths of id and name, size of the saved memory (its low half in old files), size of the extra data."""
_MAGIC = b"QFI\xfb"
_MOST = 1000
_LONGEST = 1 << 17


def read_snapshot_sizes(path: str) -> dict[str, int]:
    """Return the bytes of saved memory of each snapshot by name; empty if the file cannot be read. Blocking.

    The value is 0 for a snapshot without memory. `path`: the qcow2 file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        return _read(descriptor)
    except (OSError, struct.error):
        return {}
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> dict[str, int]:
    magic, count, offset = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
    sizes: dict[str, int] = {}
    if magic != _MAGIC:
        return sizes
    for _ in range(min(count, _MOST)):
        id_length, name_length, memory_bytes, extra_length = _ENTRY.unpack(
            os.pread(descriptor, _ENTRY.size, offset)
        )
        if extra_length > _LONGEST:
            return sizes
        rest = os.pread(descriptor, extra_length + id_length + name_length, offset + _ENTRY.size)
        if extra_length >= 8:
            (memory_bytes,) = struct.unpack_from(">Q", rest)
        name = rest[extra_length + id_length :].decode(errors="replace")
        sizes[name] = memory_bytes
        offset += -(-(_ENTRY.size + len(rest)) // 8) * 8
    return sizes
