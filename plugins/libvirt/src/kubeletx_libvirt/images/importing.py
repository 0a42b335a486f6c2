"""Converts a fetched file to a stored disk: unpacks and hashes the file and determines its format, or refuses it.

Everything here blocks and runs on the store's threads. The format is determined here, once, from the file's
first bytes, and becomes part of the stored file's name. It is never probed again, since a guest may later
write anything to its own disk (DECISIONS 29 in docs/decisions/answers.md).
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO

import msgspec

from . import qcow2
from .problems import Refused
from .unpack import CHUNK_BYTES, packing_of, reported, unpack

QCOW2, RAW = "qcow2", "raw"
_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)
_SECTOR = 512
_SUFFIX = re.compile(r"\.(qcow2|raw)(\.(xz|gz|zst))?$", re.IGNORECASE)
_FOREIGN = {
    b"KDMV": "a VMDK file",
    b"COWD": "a VMDK file",
    b"# Disk DescriptorFile": "a VMDK descriptor",
    b"conectix": "a VHD file",
    b"vhdxfile": "a VHDX file",
    b"<<< ": "a VDI file",
    b"QED\0": "a QED file",
    b"LUKS\xba\xbe": "encrypted (LUKS), and there is no key for it,",
    b"PK\x03\x04": "a zip archive",
    b"BZh": "packed with bzip2",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive",
}
_TAR = (257, b"ustar")


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Maximum sizes of a disk.

    `image_bytes`: of the unpacked file. `virtual_bytes`: of the disk that a guest sees.
    """

    image_bytes: int
    virtual_bytes: int


class Stopped(Exception):
    """Raised if the pull is cancelled."""


class Disk(msgspec.Struct, frozen=True, kw_only=True):
    """A disk image in a file. `format`: qcow2 or raw. `sha256`: hash of the file, in hex."""

    path: Path
    sha256: str
    format: str
    virtual_size_bytes: int
    file_bytes: int


class Sink:
    """Writes a new file with holes in place of zeros, and counts and hashes the bytes.

    `limit`: maximum number of bytes; more are refused.
    """

    def __init__(self, file: BinaryIO, limit: int) -> None:
        self._file, self._limit = file, limit
        self.size = 0
        self.sha256 = hashlib.sha256()

    def write_all(self, chunks: Iterable[bytes], stop: threading.Event) -> None:
        """Write all chunks. Raises Refused above the limit, and Stopped if `stop` is set."""
        for chunk in chunks:
            if stop.is_set():
                raise Stopped
            if self.size + len(chunk) > self._limit:
                raise Refused(
                    f"unpacks to more than {self._limit} bytes",
                    "raise kubeletx.plugins.libvirt.maxImageBytes if it is meant to be that large",
                )
            self.sha256.update(chunk)
            view = memoryview(chunk)
            for start in range(0, len(chunk), _BLOCK_BYTES):
                block = view[start : start + _BLOCK_BYTES]
                if block == _ZEROS[: len(block)]:
                    self._file.seek(len(block), os.SEEK_CUR)
                else:
                    self._file.write(block)
            self.size += len(chunk)
        self._file.truncate(self.size)


def import_disk(
    source: Path,
    *,
    name: str,
    scratch: Path,
    limits: Limits,
    stop: threading.Event,
    progress: Callable[[int], object],
    sha256: str = "",
) -> Disk:
    """Examine the fetched file `source` and describe the disk in it. If `source` is packed, unpack it to `scratch`.

    `name`: the published file name; its suffix must match the content. `sha256`: hash of `source`; empty: it
    is computed here. `progress`: called with the number of bytes of `source` that were unpacked. Raises Refused for a disk that must not be used, Stopped if `stop` is set, and OSError.
    """
    path = source
    with source.open("rb") as file:
        kind = packing_of(file.read(8))
        if kind:
            file.seek(0)
            path = scratch
            with open(scratch, "wb", opener=private_opener) as target:
                sink = Sink(target, limits.image_bytes)
                sink.write_all(reported(unpack(file, kind), file, progress), stop)
            sha256 = sink.sha256.hexdigest()
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > limits.image_bytes:
            raise too_large(size, limits.image_bytes)
        format, virtual = examine(file, size, name=name, limits=limits)
        digest = sha256 or hash_file(file, stop)
    return Disk(path=path, sha256=digest, format=format, virtual_size_bytes=virtual, file_bytes=size)


def examine(file: BinaryIO, size: int, *, name: str, limits: Limits) -> tuple[str, int]:
    """Return format and virtual size of an unpacked disk. Raises Refused for a disk that must not be used.

    `size`: size of the file. `name`: the published file name; its suffix must match the content.
    """
    file.seek(0)
    head = file.read(qcow2.HEAD_BYTES)
    match = _SUFFIX.search(name)
    claimed = match[1].lower() if match else ""
    if qcow2.is_qcow2(head):
        if claimed == RAW:
            raise Refused("is named .raw and holds a qcow2 file", "name it .qcow2 or convert it")
        header = qcow2.check_header(head)
        _check_virtual(header.virtual_size_bytes, limits)
        qcow2.check_complete(header, lambda at, length: os.pread(file.fileno(), length, at), size)
        return QCOW2, header.virtual_size_bytes
    if foreign := _foreign(head):
        raise Refused(f"is {foreign}, not a disk", "publish qcow2 or raw; qemu-img convert makes one")
    if claimed == QCOW2:
        raise Refused("is named .qcow2 and holds no qcow2 file", "check what the server really sends")
    if size < _SECTOR:
        raise Refused(f"holds {size} bytes, too few for a disk", "check what the server really sends")
    virtual = -(-size // _SECTOR) * _SECTOR
    _check_virtual(virtual, limits)
    return RAW, virtual


def hash_file(file: BinaryIO, stop: threading.Event) -> str:
    """Return the SHA-256 of a whole file in hex. Raises Stopped if `stop` is set."""
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        if stop.is_set():
            raise Stopped
        digest.update(chunk)
    return digest.hexdigest()


def too_large(size: int, limit: int) -> Refused:
    """Return the error for a fetched file above the limit."""
    return Refused(
        f"has {size} bytes, and at most {limit} are allowed",
        "raise kubeletx.plugins.libvirt.maxImageBytes if it is meant to be that large",
    )


def private_opener(path: str, flags: int) -> int:
    """Open a file for the builtin `open`; new files get mode 0600."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def _check_virtual(virtual: int, limits: Limits) -> None:
    if virtual > limits.virtual_bytes:
        raise Refused(
            f"is a disk of {virtual} bytes, and at most {limits.virtual_bytes} are allowed",
            "raise kubeletx.plugins.libvirt.maxVirtualBytes if it is meant to be that large",
        )


def _foreign(head: bytes) -> str:
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            return what
    if packing_of(head):
        return "packed twice"
    if head[_TAR[0] :].startswith(_TAR[1]):
        return "a tar archive"
    start = head[:_SECTOR]
    if start and all(byte in b"\t\n\r\f" or byte >= 32 for byte in start) and _is_text(start):
        return "text"
    return ""


def _is_text(start: bytes) -> bool:
    try:
        start.decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(start) - 4  # a character cut in two
    return True
