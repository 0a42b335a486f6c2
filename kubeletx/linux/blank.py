"""Rules that tell a blank device from one with data. Pure; `blank_probe` is the program that reads the device.

A device is formatted only if three looks agree that it is blank: blkid(8) and wipefs(8) find no signature, and
`blank_probe` finds a device that can be written, is not in use, and whose first and last MiB are zero. A partition table
is data. Exit status 2 of blkid also means that the device could not be read, so it alone proves nothing. Data without a
known signature, such as a database or an encrypted device, is therefore never overwritten.
"""

from __future__ import annotations

import pkgutil
import sys
from pathlib import Path
from typing import Final

import msgspec

from . import blank_probe

_IN_ZIPAPP: Final = not Path(blank_probe.__file__).exists()
_TEXT: Final = pkgutil.get_data(__package__, "blank_probe.py") if _IN_ZIPAPP else None
PROBE: Final = (sys.executable, "-IS", *(("-c", _TEXT.decode()) if _TEXT else (blank_probe.__file__,)))
"""Command that runs the probe: a file, or its text from a zipapp, since Python runs no single file of one.

Its arguments are the device and, for an interrupted format, `INTERRUPTED`.
"""
BLKID: Final = ("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", "--")
WIPEFS: Final = ("wipefs", "--no-act", "--")
BLKID_NOTHING: Final = 2
BLKID_AMBIVALENT: Final = 8


class DeviceContent(msgspec.Struct, frozen=True, kw_only=True):
    """Content that blkid has found.

    `fs_type`: type of a file system or other content. `partitions`: type of a partition table.
    """

    fs_type: str = ""
    partitions: str = ""

    def __str__(self) -> str:
        if self.partitions:
            return f"a partition table ({self.partitions})"
        return self.fs_type or "content of an unknown type"


def parse_signature(output: str) -> DeviceContent:
    """Return the content that ``blkid -o export`` prints."""
    values = dict(line.partition("=")[::2] for line in output.split("\n") if "=" in line)
    return DeviceContent(fs_type=values.get("TYPE", ""), partitions=values.get("PTTYPE", ""))


def problem_with_signature(signature: DeviceContent, wanted: str) -> str:
    """Return why a device with this content cannot be mounted as file system `wanted`; empty: it can.

    `wanted` empty: every file system will do.
    """
    if signature.partitions:
        return f"it contains {signature}; use a device without one, or erase it with wipefs if its data is not needed"
    if not signature.fs_type or (wanted and signature.fs_type != wanted):
        return f"it contains {signature}, and fsType is {wanted or 'not set'}; correct fsType"
    return ""


def problem_with_wipefs(code: int, output: str) -> str:
    """Return why a device is not blank after ``wipefs --no-act``; empty: it may be."""
    if code != 0:
        return f"wipefs failed with exit status {code}"
    return f"wipefs finds a signature: {' '.join(output.split())}" if output.strip() else ""


def problem_with_probe(code: int, output: str) -> str:
    """Return why a device is not blank after `PROBE`; empty: it is blank."""
    if code == 0:
        return ""
    return output or f"the look at its bytes failed with exit status {code}"
