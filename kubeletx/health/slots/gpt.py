"""Slots in a partition table: attribute bits of the GPT partitions IMGA and IMGB. Source: EVE's zboot, UEFI 2.10 chapter 5.3.

The upper 16 attribute bits of a partition: priority 0-3, tries 4-7, successful 8; EVE's GRUB (gptprio.next) reads them.

    0x102   active       priority 2, successful
    0x013   updating     priority 3, one try
    0x003   inprogress   priority 3, the loader has used up the try
    0x000   unused       priority 0: the loader leaves it out

The table has two copies with checksums. They are written one after the other, an invalid one first, so that after a power
cut at least one is valid, with the old or the new state. Of two valid copies the first counts, as in UEFI. The kernel's
command line names the running slot: ``kubeletx.slot=IMGA``, ``root=PARTLABEL=IMGA`` or ``root=PARTUUID=...``.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from ..model import Slot, SlotState, SlotTable
from .slots import COMMAND_LINE, LABELS, Abilities, Slots, SlotsError, running_label

_BLKSSZGET: Final = 0x1268
_HEADER: Final = struct.Struct("<8s4I4Q16sQ3I")
_SIGNATURE: Final = b"EFI PART"
_ENTRY_BYTES: Final = 128
_MOST_ENTRIES: Final = 1024
_SHIFT: Final = 48
_MASK: Final = 0x1FF << _SHIFT
_BITS: Final = {SlotState.ACTIVE: 0x102, SlotState.UPDATING: 0x013, SlotState.UNUSED: 0}


class _Header(NamedTuple):
    """Fields of a header as on disk. `here`, `other`: sectors of this header and of the other one."""

    signature: bytes
    revision: int
    size: int
    checksum: int
    reserved: int
    here: int
    other: int
    first_usable: int
    last_usable: int
    disk: bytes
    entries_at: int
    entry_count: int
    entry_size: int
    entries_checksum: int

    @property
    def entries_bytes(self) -> int:
        return self.entry_count * self.entry_size

    def sealed(self) -> bytes:
        """Return the bytes of the header with its checksum."""
        bare = self._replace(checksum=0)
        return _HEADER.pack(*bare._replace(checksum=zlib.crc32(_HEADER.pack(*bare))))


class _Copy(NamedTuple):
    header: _Header
    entries: bytes


class _Partition(NamedTuple):
    """Entry of a partition. `offset`: in the entries."""

    offset: int
    identity: uuid.UUID
    attributes: int


class _Disk:
    """An open disk, or an image of one."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.sector = 512
        if stat.S_ISBLK(os.fstat(descriptor).st_mode):
            self.sector = int.from_bytes(fcntl.ioctl(descriptor, _BLKSSZGET, bytes(4)), "little")
        self.last = os.lseek(descriptor, 0, os.SEEK_END) // self.sector - 1

    def copies(self) -> tuple[_Copy | None, _Copy | None]:
        """Read the first and the second copy; None: it is not valid."""
        first = self._copy(1)
        return first, self._copy(first.header.other if first else self.last)

    def _copy(self, sector: int) -> _Copy | None:
        if not 0 < sector <= self.last:
            return None
        data = os.pread(self._descriptor, _HEADER.size, sector * self.sector)
        header = _Header._make(_HEADER.unpack(data))
        is_sound = (
            header.signature == _SIGNATURE
            and header.size == _HEADER.size
            and header.here == sector
            and header.entry_size == _ENTRY_BYTES
            and header.entry_count <= _MOST_ENTRIES
            and header.entries_at <= self.last
            and header.sealed() == data
        )
        if not is_sound:
            return None
        entries = os.pread(self._descriptor, header.entries_bytes, header.entries_at * self.sector)
        is_whole = len(entries) == header.entries_bytes and zlib.crc32(entries) == header.entries_checksum
        return _Copy(header, entries) if is_whole else None

    def lost_header(self, known: _Header) -> _Header:
        """Return the header of the copy that is not valid, where partitioning programs put it. Raises ValueError."""
        sectors = -(-known.entries_bytes // self.sector)
        here, entries_at = (1, 2) if known.here != 1 else (known.other, known.other - sectors)
        is_free = (
            entries_at + sectors <= known.first_usable
            if here == 1
            else known.last_usable < entries_at and here <= self.last
        )
        if not is_free:
            raise ValueError("the place of its second copy is in use")
        return known._replace(here=here, other=known.here, entries_at=entries_at)

    def write(self, header: _Header, entries: bytes) -> None:
        """Write one copy. Until its header is written it is not valid."""
        sealed = header._replace(entries_checksum=zlib.crc32(entries)).sealed()
        for data, at in ((entries, header.entries_at), (sealed.ljust(self.sector, b"\0"), header.here)):
            os.pwrite(self._descriptor, data, at * self.sector)
            os.fsync(self._descriptor)


class GptSlots(Slots):
    """Slots in the table of `disk`, a block device or an image. `command_line`: of the running kernel."""

    abilities = Abilities(
        counts_tries=True,
        limits=(
            "the loader must understand the attribute bits, as EVE's GRUB does; Debian's GRUB does not",
            "the versions of the images are not known, so a failed one may be installed again",
            "of two active images, after a commit that was cut, the first in the table boots until the guardian repairs it",
        ),
    )

    def __init__(self, disk: Path | None = None, command_line: Path = COMMAND_LINE) -> None:
        """Raises SlotsError without a disk; it is opened by each call."""
        if disk is None:
            raise SlotsError("--slots gpt: needs a disk, such as gpt:/dev/sda")
        self.place, self._path, self._command_line = disk, disk, command_line

    def _read(self) -> SlotTable:
        with self._open(os.O_RDONLY) as disk:
            first, second = disk.copies()
        partitions = self._partitions(first or second)
        a, b = (self._slot(label, partitions[label]) for label in LABELS)
        return SlotTable((a, b), self._current_label(partitions))

    def _write(self, label: str, state: SlotState) -> None:
        with self._open(os.O_RDWR) as disk:
            first, second = disk.copies()
            partition = self._partitions(first or second)[label]
            known = first or second
            assert known is not None
            attributes = partition.attributes
            if _state(attributes) is not state:
                attributes = attributes & ~_MASK | _BITS[state] << _SHIFT
            entries = bytearray(known.entries)
            struct.pack_into("<Q", entries, partition.offset + 48, attributes)
            try:
                self._write_copies(disk, first, second, bytes(entries))
            except ValueError as error:
                raise SlotsError(f"{self._path}: {error}; repair it with sgdisk or gdisk") from error

    def _write_copies(self, disk: _Disk, first: _Copy | None, second: _Copy | None, entries: bytes) -> None:
        if first and second and first.entries == second.entries == entries:
            return
        if first is None:
            assert second is not None
            headers = [disk.lost_header(second.header), second.header]
        else:
            headers = [second.header if second else disk.lost_header(first.header), first.header]
        for header in headers:
            disk.write(header, entries)

    @contextmanager
    def _open(self, flags: int) -> Iterator[_Disk]:
        descriptor = os.open(self._path, flags | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            yield _Disk(descriptor)
        finally:
            os.close(descriptor)

    def _partitions(self, copy: _Copy | None) -> dict[str, _Partition]:
        """Return the partitions of both slots by label."""
        if copy is None:
            raise SlotsError(f"{self._path}: neither copy of its GPT is valid; repair it with gdisk")
        found: dict[str, _Partition] = {}
        for offset in range(0, len(copy.entries), _ENTRY_BYTES):
            identity, attributes, name = struct.unpack_from("<16x16s16xQ72s", copy.entries, offset)
            label = name.decode("utf-16-le", errors="replace").partition("\0")[0]
            if label not in LABELS:
                continue
            if label in found:
                raise SlotsError(f"{self._path}: two partitions are named {label}; rename one with sgdisk")
            found[label] = _Partition(offset, uuid.UUID(bytes_le=identity), attributes)
        for label in LABELS:
            if label not in found:
                raise SlotsError(f"{self._path}: no partition is named {label}; name it with sgdisk -c")
        return found

    def _slot(self, label: str, partition: _Partition) -> Slot:
        return Slot(label, _state(partition.attributes), "", f"PARTUUID={partition.identity}")

    def _current_label(self, partitions: dict[str, _Partition]) -> str:
        labels = {}
        for label, partition in partitions.items():
            for name in ("kubeletx.slot", "root=partlabel"):
                labels[f"{name}={label.lower()}"] = label
            labels[f"root=partuuid={partition.identity}"] = label
        return running_label(self._command_line, labels)


def _state(attributes: int) -> SlotState:
    bits = attributes >> _SHIFT
    priority, tries, is_successful = bits & 0xF, bits >> 4 & 0xF, bits >> 8 & 1
    if not priority:
        return SlotState.UNUSED
    if is_successful:
        return SlotState.ACTIVE
    return SlotState.UPDATING if tries else SlotState.INPROGRESS
