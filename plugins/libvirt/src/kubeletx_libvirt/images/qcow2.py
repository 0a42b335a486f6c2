"""Reads and writes headers of qcow2 files without QEMU. Source: QEMU, docs/interop/qcow2.txt.

An image may come from an untrusted source, and QEMU opens every file that an image's header names: any file
of the node could be named as backing file or as data file. `check_header` refuses such an image before QEMU
reads it. `check_complete` walks the tables and refuses a truncated file. Both raise only `Refused` (or the
reader's OSError), whatever the bytes are.

`read_snapshot_sizes` reads what libvirt does not report; QEMU may have the disk open meanwhile.

`write_overlay` makes the empty overlay of a machine: a header and three tables. To start qemu-img for that
would take longer than all other preparations of a machine together.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from .problems import Refused

MAGIC = b"QFI\xfb"
HEAD_BYTES = 2 << 20
"""Number of bytes to read for a header. The header is in the first cluster, and clusters have at most 2 MiB."""

_V2 = struct.Struct(">4sIQIIQIIQQIIQ")
_V3 = struct.Struct(">QQQII")
_END, _BACKING_FORMAT, _DATA_FILE, _LUKS = 0, 0xE2792ACA, 0x44415441, 0x0537BE77
_CORRUPT, _EXTERNAL, _COMPRESSION, _EXTENDED_L2 = 1 << 1, 1 << 2, 1 << 3, 1 << 4
_KNOWN_INCOMPATIBLE = 1 | _CORRUPT | _EXTERNAL | _COMPRESSION | _EXTENDED_L2
_MAX_L1_BYTES = 32 << 20
_MAX_REFCOUNT_TABLE_BYTES = 8 << 20
_OFFSET = 0x00FFFFFFFFFFFE00
_COMPRESSED = 1 << 62
_REFCOUNT_OFFSET = 0xFFFFFFFFFFFFFE00
_SECTOR = 512
_OVERLAY_BITS = 16
"""log2 of the cluster size: 64 KiB, the default of qemu-img."""
_REFCOUNT_ORDER = 4
_LONGEST_BACKING_NAME = 1023
_SNAPSHOTS = struct.Struct(">4s56xIQ")
"""Magic, number of snapshots, offset of their table."""
_SNAPSHOT = struct.Struct(">12xHH16xII")
"""Lengths of id and name, size of the saved memory (its low half in old files), size of the extra data."""
_MOST_SNAPSHOTS = 1000
_MOST_EXTRA_BYTES = 1 << 17

ReadAt = Callable[[int, int], bytes]
"""Function (offset, length) that returns the bytes of a file; fewer at the end of the file."""
_DAMAGED = "find the damage with qemu-img check, and publish the image again"


class Qcow2(msgspec.Struct, frozen=True, kw_only=True):
    """Fields of a header that `check_header` has accepted. Offsets are in bytes."""

    version: int
    virtual_size_bytes: int
    cluster_bits: int
    l1_offset: int
    l1_entries: int
    refcount_offset: int
    refcount_clusters: int
    extended_l2: bool = False

    @property
    def cluster_bytes(self) -> int:
        return 1 << self.cluster_bits


def is_qcow2(head: bytes) -> bool:
    """Return True if `head`, the first bytes of a file, begins a qcow2 file."""
    return head[:4] == MAGIC


def check_header(head: bytes) -> Qcow2:
    """Parse the header in `head`, the first `HEAD_BYTES` bytes of a file.

    Raises Refused for an image that must not be used.
    """
    if not is_qcow2(head):
        raise Refused("is not a qcow2 file", "check what the server really sends")
    if len(head) < _V2.size:
        raise _truncated("its header is not complete")
    (_, version, backing, backing_size, bits, size, crypt, l1_entries, l1, refcount, refcounts, _, _) = (
        _V2.unpack_from(head)
    )
    if version not in (2, 3):
        raise Refused(f"is a qcow2 file of version {version}", "convert it with: qemu-img convert -O qcow2")
    if not 9 <= bits <= 21:
        raise Refused(f"has clusters of 2^{bits} bytes; 2^9 to 2^21 are legal", _DAMAGED)
    if backing or backing_size:
        raise Refused(
            "has a backing file, which would let it read other files of the node",
            "flatten it with: qemu-img convert -O qcow2",
        )
    if crypt:
        raise Refused("is encrypted, and there is no key for it", "publish it without encryption")
    header_bytes, incompatible = _V2.size, 0
    if version == 3:
        if len(head) < _V2.size + _V3.size:
            raise _truncated("its header is not complete")
        incompatible, _, _, _, header_bytes = _V3.unpack_from(head, _V2.size)
        if header_bytes < _V2.size + _V3.size or header_bytes > 1 << bits or header_bytes % 8:
            raise Refused(f"has a header of {header_bytes} bytes", _DAMAGED)
    _check_features(incompatible)
    _check_extensions(head, header_bytes, 1 << bits)
    extended = bool(incompatible & _EXTENDED_L2)
    if extended and bits < 14:
        raise Refused("has extended tables with clusters below 16 KiB", _DAMAGED)
    entry_bytes = 16 if extended else 8
    covered = (1 << bits) // entry_bytes << bits
    if size == 0:
        raise Refused("is a disk of 0 bytes", "check how it was made")
    if l1_entries * 8 > _MAX_L1_BYTES or l1_entries < -(-size // covered) or l1 % (1 << bits) or l1 == 0:
        raise Refused(f"has an impossible table ({l1_entries} entries of {entry_bytes} bytes)", _DAMAGED)
    if (
        refcounts << bits > _MAX_REFCOUNT_TABLE_BYTES
        or refcount % (1 << bits)
        or refcounts == 0
        or not refcount
    ):
        raise Refused(f"has an impossible reference table ({refcounts} clusters)", _DAMAGED)
    return Qcow2(
        version=version,
        virtual_size_bytes=size,
        cluster_bits=bits,
        l1_offset=l1,
        l1_entries=l1_entries,
        refcount_offset=refcount,
        refcount_clusters=refcounts,
        extended_l2=extended,
    )


def check_complete(header: Qcow2, read_at: ReadAt, file_bytes: int) -> None:
    """Raise Refused if a table or a cluster is beyond the end of the file.

    `file_bytes`: size of the file. A cluster must be complete, as QEMU writes it. Three things may extend
    beyond the end, where QEMU reads zeros: the disk's last cluster, the sectors after compressed data, and
    the clusters of extended tables.
    """
    size = header.cluster_bytes
    if header.l1_offset + header.l1_entries * 8 > file_bytes:
        raise _truncated("its tables lie beyond the end of the file")
    blocks = _entries(read_at, header.refcount_offset, header.refcount_clusters * size, file_bytes)
    if any((block & _REFCOUNT_OFFSET) + size > file_bytes for block in blocks if block & _REFCOUNT_OFFSET):
        raise _truncated("a reference block lies beyond the end of the file")
    per_table = size // (16 if header.extended_l2 else 8)
    last_cluster = (header.virtual_size_bytes - 1) // size
    seen: set[int] = set()
    for index, entry in enumerate(_entries(read_at, header.l1_offset, header.l1_entries * 8, file_bytes)):
        table = entry & _OFFSET
        if not table or table in seen:
            continue
        seen.add(table)
        if table % size:
            raise Refused("has a table that is not aligned", _DAMAGED)
        entries = _entries(read_at, table, size, file_bytes)[:: 2 if header.extended_l2 else 1]
        may_end_early = last_cluster - index * per_table
        for position, cluster in enumerate(entries):
            if cluster > file_bytes - size and (needed := _needed(cluster, header)) > file_bytes:
                is_tail = position == may_end_early or header.extended_l2
                if not is_tail or needed - size >= file_bytes:
                    raise _truncated(f"it has {file_bytes} bytes and needs {needed}")


def _needed(entry: int, header: Qcow2) -> int:
    """Return the minimum size of a file that contains the cluster of this table entry; 0 for an empty entry."""
    if entry & _COMPRESSED:
        shift = 62 - (header.cluster_bits - 8)
        sectors = (entry & (_COMPRESSED - 1)) >> shift
        return ((entry & ((1 << shift) - 1)) // _SECTOR + sectors) * _SECTOR + 1
    start = entry & _OFFSET
    return start + header.cluster_bytes if start else 0


def backing_file(path: Path) -> str | None:
    """Return the backing file that an overlay names; None if it names none or is not qcow2."""
    with path.open("rb") as file:
        head = file.read(_V2.size)
        if len(head) < _V2.size or not is_qcow2(head):
            return None
        offset, length = struct.unpack_from(">QI", head, 8)
        if not offset or not length or length > 1023:
            return None
        file.seek(offset)
        return file.read(length).decode(errors="surrogateescape")


def write_overlay(path: Path, *, backing: str, backing_format: str, size_bytes: int) -> None:
    """Write an empty overlay of `size_bytes` on the image `backing`, and sync it to disk.

    The file contains only the header and the tables. Raises ValueError for values that the format cannot
    express.
    """
    name = os.fsencode(backing)
    if not name or len(name) > _LONGEST_BACKING_NAME:
        raise ValueError(
            f"a backing file's name has 1 to {_LONGEST_BACKING_NAME} bytes, this one {len(name)}"
        )
    cluster = 1 << _OVERLAY_BITS
    size = -(-size_bytes // _SECTOR) * _SECTOR
    entries = max(1, -(-size // (cluster // 8 * cluster)))
    if entries * 8 > _MAX_L1_BYTES:
        raise ValueError(f"a disk of {size} bytes is too large for clusters of {cluster} bytes")
    table_at, block_at, l1_at = cluster, 2 * cluster, 3 * cluster
    clusters = 3 + -(-entries * 8 // cluster)
    form = backing_format.encode()
    extensions = struct.pack(">II", _BACKING_FORMAT, len(form)) + form.ljust(-(-len(form) // 8) * 8, b"\0")
    extensions += struct.pack(">II", _END, 0)
    header_bytes = _V2.size + _V3.size
    name_at = header_bytes + len(extensions)
    header = _V2.pack(
        MAGIC, 3, name_at, len(name), _OVERLAY_BITS, size, 0, entries, l1_at, table_at, 1, 0, 0
    ) + _V3.pack(0, 0, 0, _REFCOUNT_ORDER, header_bytes)
    with path.open("wb") as file:
        file.write(header + extensions + name)
        file.seek(table_at)
        file.write(struct.pack(">Q", block_at))
        file.seek(block_at)
        file.write(struct.pack(">H", 1) * clusters)
        file.truncate(clusters * cluster)
        file.flush()
        os.fdatasync(file.fileno())


def read_snapshot_sizes(path: str) -> dict[str, int]:
    """Return the bytes of saved memory of each snapshot by name; empty if the file cannot be read. Blocking.

    The value is 0 for a snapshot without memory. `path`: the qcow2 file.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        return _snapshot_sizes(descriptor)
    except (OSError, struct.error):
        return {}
    finally:
        os.close(descriptor)


def _snapshot_sizes(descriptor: int) -> dict[str, int]:
    magic, count, offset = _SNAPSHOTS.unpack(os.pread(descriptor, _SNAPSHOTS.size, 0))
    sizes: dict[str, int] = {}
    if magic != MAGIC:
        return sizes
    for _ in range(min(count, _MOST_SNAPSHOTS)):
        id_length, name_length, memory_bytes, extra_length = _SNAPSHOT.unpack(
            os.pread(descriptor, _SNAPSHOT.size, offset)
        )
        if extra_length > _MOST_EXTRA_BYTES:
            return sizes
        rest = os.pread(descriptor, extra_length + id_length + name_length, offset + _SNAPSHOT.size)
        if extra_length >= 8:
            (memory_bytes,) = struct.unpack_from(">Q", rest)
        name = rest[extra_length + id_length :].decode(errors="replace")
        sizes[name] = memory_bytes
        offset += -(-(_SNAPSHOT.size + len(rest)) // 8) * 8
    return sizes


def _check_features(incompatible: int) -> None:
    if incompatible & _EXTERNAL:
        raise Refused(
            "keeps its data in an external file, which would let it read other files of the node",
            "convert it with: qemu-img convert -O qcow2",
        )
    if incompatible & _CORRUPT:
        raise Refused("is marked as corrupt", "repair it with: qemu-img check -r all")
    if unknown := incompatible & ~_KNOWN_INCOMPATIBLE:
        raise Refused(
            f"needs features of qcow2 that are not known here ({unknown:#x})",
            "convert it with: qemu-img convert -O qcow2",
        )


def _check_extensions(head: bytes, position: int, end: int) -> None:
    while position + 8 <= min(end, len(head)):
        kind, length = struct.unpack_from(">II", head, position)
        if kind == _END:
            return
        if kind == _DATA_FILE:
            raise Refused(
                "names an external data file, which would let it read other files of the node",
                "convert it with: qemu-img convert -O qcow2",
            )
        if kind == _LUKS:
            raise Refused("has an encryption header, and there is no key for it", "publish it unencrypted")
        position += 8 + -(-length // 8) * 8
        if position > end:
            raise Refused("has a header extension that exceeds the header", _DAMAGED)
    if position + 8 <= end:
        raise _truncated("its header is not complete")


def _entries(read_at: ReadAt, offset: int, length: int, file_bytes: int) -> tuple[int, ...]:
    data = read_at(offset, length) if offset + length <= file_bytes else b""
    if len(data) != length:
        raise _truncated("a table lies beyond the end of the file")
    return struct.unpack(f">{length // 8}Q", data)


def _truncated(why: str) -> Refused:
    return Refused(f"is a truncated qcow2 file: {why}", "publish the whole file")
