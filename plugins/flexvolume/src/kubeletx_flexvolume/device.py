"""`Device`: looks at the content of a block device, checks its file system, formats it if it is blank, and enlarges it.

blkid ─┬─ a file system, of the asked type ─► fsck, unless read-only ─► mount
       ├─ other content ──► refused
       └─ nothing ─► wipefs, blank_probe ─┬─ blank ─► mkfs ─► mount
                                          └─ data, unreadable, read-only, tiny or in use ─► refused
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import structlog

from kubeletx.api import KubeletxError, Unavailable, Unsupported
from kubeletx.api.names import Event
from kubeletx.linux.blank import (
    BLKID,
    BLKID_AMBIVALENT,
    BLKID_NOTHING,
    WIPEFS,
    parse_signature,
    problem_with_probe,
    problem_with_signature,
    problem_with_wipefs,
)
from kubeletx.linux.mounts import MountPoint
from kubeletx.linux.programs import ProgramResult

from .errors import volume_error
from .programs import LONG_SECONDS, LOOK_SECONDS, VolumePrograms

log = structlog.get_logger(__name__)

DEFAULT_FS_TYPE: Final = "ext4"
_EXT: Final = frozenset({"ext2", "ext3", "ext4"})
MAKE_OPTIONS: Final = {"ext3": ("-q", "-F", "-m0"), "ext4": ("-q", "-F", "-m0"), "xfs": ("-q",)}
"""Five percent of space for root is of no use in a volume."""
_FORCE_OPTIONS: Final = {"xfs": ("-f",)}
"""For a device that has half a file system. mkfs.ext4 overwrites that without an option."""
_NOT_REPAIRED: Final = 4
_FAILED: Final = 8


class Device:
    """A block device of one volume."""

    def __init__(self, path: str, programs: VolumePrograms) -> None:
        self.path = path
        self._programs = programs

    async def look(self, fs_type: str, *, read_only: bool, is_interrupted: bool = False) -> str:
        """Return the type of the device's file system, which was checked; empty: it is blank and may be formatted.

        `fs_type`: file system that the volume asks for; empty: any. `read_only`: no pod writes to the volume; nothing is
        repaired then, and a blank device is refused. `is_interrupted`: this node has begun to format the device, so that
        its bytes need not be zero. Raises Unavailable if the content is unknown, or is not what the volume asks for.
        """
        blkid = await self._run(*BLKID, self.path)
        if blkid.exit_code == BLKID_AMBIVALENT:
            raise self.refused("blkid finds more than one kind of content; remove one with wipefs")
        if blkid.exit_code == BLKID_NOTHING and not blkid.out.strip():
            await self._check_blank(read_only=read_only, is_interrupted=is_interrupted)
            return ""
        if blkid.exit_code != 0:
            raise self._failed(blkid)
        signature = parse_signature(blkid.out)
        if problem := problem_with_signature(signature, fs_type):
            raise self.refused(problem)
        if not read_only:
            await self._check(signature.fs_type)
        return signature.fs_type

    async def make(self, fs_type: str, *, force: bool = False) -> None:
        """Format the device. `force`: also if it has a part of a file system.

        Raises Unavailable or TimedOut, and then its content is unknown.
        """
        options = [*MAKE_OPTIONS.get(fs_type, ()), *(_FORCE_OPTIONS.get(fs_type, ()) if force else ())]
        result = await self._run(f"mkfs.{fs_type}", *options, self.path, seconds=LONG_SECONDS)
        if result.exit_code != 0:
            raise self._failed(result)
        log.info("Formatted a device", volume=self._programs.volume, device=self.path, fs_type=fs_type)

    async def find_size(self) -> int:
        """Return the size in bytes; 0 if the path is not a block device of this node."""
        if not self.path.startswith("/") or "\0" in self.path:
            return 0
        result = await self._run("blockdev", "--getsize64", self.path)
        return int(result.out) if result.exit_code == 0 else 0

    async def grow(self, mounted: MountPoint, size_bytes: int) -> int:
        """Make the file system that is mounted from the device as large as the device; return the size of the device.

        `size_bytes`: size that the device should have at least. Raises Unsupported for a file system that cannot grow
        while it is mounted.
        """
        command = self._grow_command(mounted)
        size = await self.find_size()
        if size < size_bytes:
            raise self.refused(f"it has {size} bytes, and the volume should have {size_bytes}", "be expanded")
        if mounted.is_read_only or "ro" in mounted.super_options:
            raise self.refused("it is mounted read-only, so that its file system cannot grow", "be expanded")
        result = await self._run(*command, seconds=LONG_SECONDS)
        if result.exit_code != 0:
            raise self._failed(result)
        return size

    def refused(self, problem: str, what: str = "be mounted") -> KubeletxError:
        """Return an error. `what`: what cannot be done with the device."""
        return volume_error(
            Unavailable, self._programs.volume, f"device {self.path} cannot {what}: {problem}"
        )

    async def _check_blank(self, *, read_only: bool, is_interrupted: bool) -> None:
        """Raise Unavailable unless the second and third look find the device blank, on which blkid finds nothing."""
        if read_only:
            raise self.refused(
                "it has no file system, and the pod only reads, so that it is not formatted; mount it once for writing"
            )
        wipefs = await self._run(*WIPEFS, self.path)
        problem = problem_with_wipefs(wipefs.exit_code, wipefs.out)
        if not problem:
            probe = await self._programs.probe(self.path, is_interrupted=is_interrupted)
            problem = problem_with_probe(probe.exit_code, probe.out)
        if problem:
            raise self.refused(
                f"{problem}; if nothing on it is needed, erase it (blkdiscard, or wipefs -a and zeros over its first and "
                "last MiB)",
                "be formatted",
            )

    async def _check(self, fs_type: str) -> None:
        """Check the file system, and repair what can be repaired without questions."""
        if fs_type == "xfs":  # it repairs itself when it is mounted
            return
        command = (f"fsck.{fs_type}", "-p") if fs_type in _EXT else ("fsck", "-a")
        result = await self._run(*command, self.path, seconds=LONG_SECONDS)
        if result.exit_code > 0 and result.exit_code & _NOT_REPAIRED:
            text = " ".join(result.out.split())[:300]
            raise self.refused(f"fsck does not repair it without questions: {text}; run fsck yourself")
        if result.exit_code >= _FAILED or result.exit_code < 0:
            if fs_type in _EXT:
                raise self._failed(result)
            # as in the kubelet: some file systems have no fsck
            log.warning("Could not check a file system", device=self.path, exit_status=result.exit_code)
        elif result.exit_code:
            log.warning("Repaired a file system", device=self.path, exit_status=result.exit_code)

    def _grow_command(self, mounted: MountPoint) -> Sequence[str]:
        if mounted.fs_type in _EXT:
            return ("resize2fs", self.path)
        if mounted.fs_type == "xfs":
            return ("xfs_growfs", "-d", mounted.target)
        if mounted.fs_type == "btrfs":
            return ("btrfs", "filesystem", "resize", "max", mounted.target)
        raise volume_error(
            Unsupported,
            self._programs.volume,
            f"file system {mounted.fs_type} at {mounted.target} cannot grow while it is mounted",
        )

    async def _run(self, *command: str, seconds: float = LOOK_SECONDS) -> ProgramResult:
        return await self._programs.run(command, seconds)

    def _failed(self, result: ProgramResult) -> Unavailable:
        return result.problem(f"volume {self._programs.volume}", Event.FAILED_MOUNT)
