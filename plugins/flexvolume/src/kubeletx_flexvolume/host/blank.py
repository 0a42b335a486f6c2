"""Decides that a block device is blank, and may be formatted.

blkid(8) finding nothing is not enough: it answers the same for a device that it cannot read. So a device is blank only
if two independent looks agree, and an error of any step means that it is not:

1. blkid -p exits with 2 and prints nothing.
2. The device is opened exclusively (which fails while it is mounted or used by another driver of the kernel), is not
   read-only, and wipefs -n finds no signature. Its first and last MiB are read, and are zero.

Data without a known signature, such as that of a database or an encrypted device, is therefore never overwritten.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
from typing import Final

import msgspec

from kubeletx.api import Unavailable
from kubeletx.api.names import Event

from .programs import Programs, failed
from .threads import Threads

_BLKROGET: Final = 0x125E
_CHECKED_BYTES: Final = 1 << 20
_NOTHING_FOUND: Final = 2


class DeviceContent(msgspec.Struct, frozen=True):
    """Content of a device as blkid sees it. `fs_type`: of its file system; empty if none was found.

    `table`: type of its partition table; empty if none was found.
    """

    fs_type: str = ""
    table: str = ""

    @property
    def is_empty(self) -> bool:
        """True if blkid found nothing, or could not read the device."""
        return not self.fs_type and not self.table


async def look_at_device(programs: Programs, device: str, *, until: float, key: str = "") -> DeviceContent:
    """Return what blkid finds on a device. Raises Unavailable if its answer is unclear."""
    program = ("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", "--", device)
    result = await programs.run(*program, until=until, key=key)
    text = result.stdout.decode("utf-8", "replace")
    if result.exit_code == _NOTHING_FOUND and not text.strip():
        return DeviceContent()
    if result.exit_code != 0:
        raise failed("blkid", f"tell what is on {device}", result)
    values = dict(line.partition("=")[::2] for line in text.split("\n"))
    content = DeviceContent(values.get("TYPE", ""), values.get("PTTYPE", ""))
    if content.is_empty:
        raise failed("blkid", f"tell what is on {device}", result)
    return content


async def check_blank(
    programs: Programs,
    threads: Threads,
    device: str,
    *,
    until: float,
    key: str = "",
    is_interrupted: bool = False,
) -> None:
    """Raise Unavailable, with the reason, unless the second look finds the device blank.

    `is_interrupted`: a format of this device was begun by this node and did not end, so that it need not be zero.
    """
    result = await programs.run("wipefs", "--no-act", "--", device, until=until, key=key)
    if result.exit_code != 0:
        raise failed("wipefs", f"look for signatures on {device}", result)
    if result.stdout.strip():
        found = " ".join(result.stdout.decode("utf-8", "replace").split())
        raise _not_blank(device, f"wipefs finds a signature: {found}")
    try:
        problem = await threads.run_until(until, _read_problem, device, is_interrupted)
    except OSError as error:
        what = "it is in use" if error.errno == errno.EBUSY else f"it cannot be read: {error.strerror}"
        raise _not_blank(device, what) from error
    if problem:
        raise _not_blank(device, problem)


def is_block_device(path: str) -> bool:
    """Return True if a path is a block device, or a link to one. Blocks."""
    try:
        return path.startswith("/") and stat.S_ISBLK(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return False


def device_size(path: str) -> int:
    """Return the size of a block device in bytes. Blocks. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.lseek(descriptor, 0, os.SEEK_END)
    finally:
        os.close(descriptor)


def _read_problem(device: str, is_interrupted: bool) -> str:
    """Return why the device is not blank; empty if it is. Blocks. Raises OSError."""
    descriptor = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    try:
        if not stat.S_ISBLK(os.fstat(descriptor).st_mode):
            return "it is no block device"
        if struct.unpack("i", fcntl.ioctl(descriptor, _BLKROGET, struct.pack("i", 0)))[0]:
            return "it is read-only"
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size < _CHECKED_BYTES:
            return f"it has only {size} bytes"
        for offset in (0, size - _CHECKED_BYTES):
            data = _read_whole(descriptor, offset, _CHECKED_BYTES)
            if any(data) and not is_interrupted:
                return "it contains data that no program recognises"
    finally:
        os.close(descriptor)
    return ""


def _read_whole(descriptor: int, offset: int, length: int) -> bytes:
    data = bytearray()
    while len(data) < length:
        chunk = os.pread(descriptor, length - len(data), offset + len(data))
        if not chunk:
            raise OSError(errno.EIO, "it ends early")
        data += chunk
    return bytes(data)


def _not_blank(device: str, why: str) -> Unavailable:
    return Unavailable(
        f"device {device} is not formatted, because {why}; if nothing on it is needed, erase it (blkdiscard, or wipefs -a "
        "and zeros over its first and last MiB)",
        reason=Event.FAILED_MOUNT,
    )
