"""Disks for tests: a small file system that a test can fill up, and block devices."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from .process import LabError, run, run_to_end
from .tools import get_tool

_MNT_DETACH = 2
_SYS_BLOCK = Path("/sys/block")


def loop_devices(directory: Path) -> list[str]:
    """Return the paths of the loop devices whose files are below `directory`."""
    found = []
    for one in sorted(_SYS_BLOCK.glob("loop*/loop/backing_file")):
        try:
            file = one.read_text().strip()
        except OSError:  # it was detached meanwhile
            continue
        if file.startswith(f"{directory}/"):
            found.append(f"/dev/{one.parts[3]}")
    return found


def detach_loop_devices(directory: Path) -> None:
    """Detach the loop devices whose files are below `directory`."""
    for device in loop_devices(directory):
        run_to_end(get_tool("losetup"), "--detach", device)


class LoopDevice:
    """A loop device as a context manager: a block device whose content is a file.

    `path`: path of the device in /dev, during the block.
    """

    def __init__(self, file: Path) -> None:
        """`file`: content of the device; it must already have its final size."""
        self.file = file
        self.path = Path()

    def __enter__(self) -> LoopDevice:
        self.path = Path(run(get_tool("losetup"), "--find", "--show", self.file).strip())
        return self

    def __exit__(self, *exc_info: object) -> None:
        run(get_tool("losetup"), "--detach", self.path)


class SmallDisk:
    """A small tmpfs as a context manager, which a test can fill up."""

    def __init__(self, directory: Path, *, size_bytes: int) -> None:
        """`directory`: mount point, made if it is missing; its content is lost at the end of the block.

        `size_bytes`: size of the file system.
        """
        self.directory = directory
        self._size_bytes = size_bytes
        self._ballast = directory / "ballast"

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Use all free space except `leave_bytes`, so that writers get ENOSPC."""
        status = os.statvfs(self.directory)
        wanted = status.f_bavail * status.f_frsize - leave_bytes
        with self._ballast.open("ab") as file:
            os.posix_fallocate(file.fileno(), file.tell(), max(wanted, 1))

    def free(self) -> None:
        """Free the space that `fill` used."""
        self._ballast.unlink(missing_ok=True)

    def __enter__(self) -> SmallDisk:
        self.directory.mkdir(parents=True, exist_ok=True)
        libc = ctypes.CDLL(None, use_errno=True)
        options = f"size={self._size_bytes},mode=755".encode()
        if libc.mount(b"tmpfs", os.fsencode(self.directory), b"tmpfs", 0, options) != 0:
            raise LabError(f"cannot mount a tmpfs at {self.directory}: {os.strerror(ctypes.get_errno())}")
        return self

    def __exit__(self, *exc_info: object) -> None:
        ctypes.CDLL(None).umount2(os.fsencode(self.directory), _MNT_DETACH)
