"""Rules that tell a blank device from one with data. Pure.

A device is formatted only if three looks agree that it is blank: blkid(8) and wipefs(8) find no signature, and the
first and the last MiB are zero. A partition table is data. Exit status 2 of blkid also means that the device could not
be read, so it alone proves nothing.
"""

from __future__ import annotations

from typing import Final

import msgspec

BLKID_NOTHING: Final = 2
BLKID_AMBIVALENT: Final = 8


class Signature(msgspec.Struct, frozen=True, kw_only=True):
    """Content that blkid has found.

    `fs_type`: type of a file system or other content. `partitions`: type of a partition table.
    """

    fs_type: str = ""
    partitions: str = ""

    def __str__(self) -> str:
        if self.partitions:
            return f"a partition table ({self.partitions})"
        return self.fs_type or "content of an unknown type"


def parse_signature(output: str) -> Signature:
    """Return the content that ``blkid -o export`` prints."""
    found = dict(line.partition("=")[::2] for line in output.split("\n") if "=" in line)
    return Signature(fs_type=found.get("TYPE", ""), partitions=found.get("PTTYPE", ""))


def problem_with_signature(signature: Signature, wanted: str) -> str:
    """Return why a device with this content cannot be mounted as file system `wanted`; empty: it can."""
    if signature.partitions:
        return f"it contains {signature}; use a device without one, or erase it with wipefs if its data is not needed"
    if signature.fs_type != wanted:
        return f"it contains {signature}, and fsType is {wanted}; correct fsType"
    return ""


def problem_with_blank(*, blkid_output: str, wipefs: tuple[int, str], zeros: tuple[int, str]) -> str:
    """Return why a device for which blkid found nothing is not blank; empty: it is.

    `wipefs`, `zeros`: exit status and output of ``wipefs --no-act`` and of `zero_probe`.
    """
    if blkid_output.strip():
        return f"blkid found {blkid_output.strip()!r}"
    if wipefs[0] != 0:
        return f"wipefs failed with exit status {wipefs[0]}"
    if wipefs[1].strip():
        return f"wipefs found {' '.join(wipefs[1].split())!r}"
    return "" if zeros[0] == 0 else zeros[1] or f"the look at its bytes failed with exit status {zeros[0]}"
