"""A virtual machine that only UEFI can boot: a disk of 1 MiB with one program for the firmware.

The disk is one FAT12 file system without partitions, made here byte by byte. It contains
``EFI/BOOT/BOOTX64.EFI``, where every UEFI firmware looks for a program. The program prints `UP` on the
firmware's consoles, one of which is the serial port, then switches the machine off when the power button is
pressed. A BIOS finds nothing to boot on this disk.
"""

from __future__ import annotations

import struct
from pathlib import Path

UP = "uefi guest is up"
"""Line that the machine prints at each boot."""

_CODE = bytes.fromhex(
    # stack; SetWatchdogTimer(0, 0, 0, 0): the firmware would reset after five minutes
    "4883ec284889d3488b436031c931d24531c04531c9ff9000010000"
    # ConOut->OutputString(the text behind the code)
    "488b4b40488d1522000000ff5108"
    # hlt; PM1_EN (0x602) = power button; again unless PM1_STS (0x600) says it was pressed
    "f466ba020666b8000166efb200edf6c40174ed"
    # PM1_CNT (0x604) = off; again
    "66ba040666b8002066efebe1"
)
_SECTOR = 512
_SECTORS = 2048
_FAT_SECTORS = 6
_DIRECTORY, _FILE = 0x10, 0x20
_X86_64, _EFI_APPLICATION = 0x8664, 10


def make_uefi_machine_image(directory: Path) -> Path:
    """Write the machine's disk (raw, 1 MiB) into `directory`; returns its path."""
    path = directory / "uefi.img"
    path.write_bytes(_file_system(_program()))
    return path


def _program() -> bytes:
    """Return the program as a PE32+ image: a sector of headers, then a sector of position-independent code."""
    text = f"{UP}\r\n\0".encode("utf-16-le")
    dos = struct.pack("<2s58xI", b"MZ", 64)
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", _X86_64, 1, 0, 0, 0, 240, 0x22)
    optional = struct.pack("<HBBIIIII", 0x20B, 0, 0, _SECTOR, 0, 0, 0x1000, 0x1000)
    optional += struct.pack("<QIIHHHHHHI", 0, 0x1000, _SECTOR, 0, 0, 0, 0, 0, 0, 0)
    optional += struct.pack("<IIIHHQQQQII", 0x2000, _SECTOR, 0, _EFI_APPLICATION, 0, 0, 0, 0, 0, 0, 16)
    section = struct.pack("<8sIIIIIIHHI", b".text", _SECTOR, 0x1000, _SECTOR, _SECTOR, 0, 0, 0, 0, 0x60000020)
    headers = dos + coff + optional.ljust(240, b"\0") + section
    return headers.ljust(_SECTOR, b"\0") + (_CODE + text).ljust(_SECTOR, b"\0")


def _file_system(program: bytes) -> bytes:
    """Return a FAT12 file system with clusters of one sector.

    Cluster 2 is the directory EFI, cluster 3 is EFI/BOOT, and the program begins at cluster 4.
    """
    boot = struct.pack(
        "<3s8sHBHBHHBHHHII",
        b"\xeb\x3c\x90",
        b"KUBELETX",
        _SECTOR,
        1,
        1,
        1,
        16,
        _SECTORS,
        0xF8,
        _FAT_SECTORS,
        1,
        1,
        0,
        0,
    )
    boot += struct.pack("<BBBI11s8s", 0x80, 0, 0x29, 1, b"KUBELETX   ", b"FAT12   ")
    last = 4 + len(program) // _SECTOR - 1
    chain = [0xFF8, 0xFFF, 0xFFF, 0xFFF, *range(5, last + 1), 0xFFF]
    parts = [
        boot.ljust(_SECTOR - 2, b"\0") + b"\x55\xaa",
        _packed(chain).ljust(_FAT_SECTORS * _SECTOR, b"\0"),
        _entry("EFI", "", _DIRECTORY, 2).ljust(_SECTOR, b"\0"),
        _directory(2, 0, _entry("BOOT", "", _DIRECTORY, 3)),
        _directory(3, 2, _entry("BOOTX64", "EFI", _FILE, 4, len(program))),
        program,
    ]
    return b"".join(parts).ljust(_SECTORS * _SECTOR, b"\0")


def _packed(chain: list[int]) -> bytes:
    """Return the file allocation table: twelve bits for each entry of `chain`."""
    number = sum(value << (12 * index) for index, value in enumerate(chain))
    return number.to_bytes(-(-len(chain) * 12 // 8), "little")


def _directory(own: int, parent: int, entry: bytes) -> bytes:
    return (_entry(".", "", _DIRECTORY, own) + _entry("..", "", _DIRECTORY, parent) + entry).ljust(
        _SECTOR, b"\0"
    )


def _entry(name: str, extension: str, kind: int, cluster: int, size: int = 0) -> bytes:
    return f"{name:8}{extension:3}".encode() + struct.pack("<B14xHI", kind, cluster, size)
