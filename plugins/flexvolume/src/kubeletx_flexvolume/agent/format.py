"""`FileSystems`: looks at the content of a device, checks its file system, and formats it if it is blank.

    blkid ─┬─ the asked type ─► fsck, unless read-only ─► ready
           ├─ other content ──► refused
           └─ nothing ─► wipefs, blank_probe ─┬─ blank ─► mkfs
                                              └─ data, unreadable, read-only, tiny or in use ─► refused

All programs run in the kubelet's mount namespace, so a node needs only util-linux and the programs of its file systems.
"""

from __future__ import annotations

import sys
from typing import Final

import structlog

from kubeletx.api import InvalidConfig, Unavailable

from .. import blank_probe
from ..blank import (
    BLKID,
    BLKID_AMBIVALENT,
    BLKID_NOTHING,
    WIPEFS,
    parse_signature,
    problem_with_signature,
    problem_with_wipefs,
)
from ..commands import Commands, ProgramResult
from ..values import StorageVolume
from .namespace import MountNamespace

log = structlog.get_logger(__name__)

MAKE_COMMANDS: Final = {
    "ext3": ("mkfs.ext3", "-q", "-F", "-m0"),
    "ext4": ("mkfs.ext4", "-q", "-F", "-m0"),
    "xfs": ("mkfs.xfs", "-q", "-f"),
}
"""Supported file systems, with the commands that make them. Five percent of space for root is of no use in a volume."""
_CHECK_COMMANDS: Final = {"ext3": ("fsck.ext3", "-p"), "ext4": ("fsck.ext4", "-p")}
"""xfs has none: it repairs itself when it is mounted."""

PROBE: Final = (sys.executable, "-IS", blank_probe.__file__)
LOOK_SECONDS: Final = 30.0
LONG_SECONDS: Final = 1800.0
"""Deadline of fsck and mkfs, which take long on large devices."""
_NOT_REPAIRED: Final = 4
_FAILED: Final = 8


class FileSystems:
    """File systems of devices. The volume's `fs_type` is one of `MAKE_COMMANDS`."""

    def __init__(self, commands: Commands, namespace: MountNamespace) -> None:
        self._commands = commands
        self._namespace = namespace

    async def look(self, volume: StorageVolume, device: str, *, read_only: bool) -> bool:
        """Return True if the device has the volume's file system, and False if it is blank and may be formatted.

        Checks the file system unless `read_only`. Raises InvalidConfig if the device has other content, and
        Unavailable if its content is unknown.
        """
        blkid = await self._run(volume, [*BLKID, device], LOOK_SECONDS)
        if blkid.code == BLKID_AMBIVALENT:
            raise _refused(
                volume, device, "blkid finds more than one kind of content", "remove one with wipefs"
            )
        if blkid.code not in (0, BLKID_NOTHING):
            raise blkid.problem(f"volume {volume.name}")
        if blkid.code == 0:
            problem = problem_with_signature(parse_signature(blkid.out), volume.fs_type)
            if problem:
                raise _refused(volume, device, problem, "nothing was written")
            if not read_only:
                await self._check(volume, device)
            return True
        problem = await self._problem_with_blank(volume, device, blkid)
        if read_only and problem in ("", blank_probe.READ_ONLY):
            raise _refused(volume, device, "it is blank, and the pod only reads", "mount it once for writing")
        if problem:
            fix = f"it has no {volume.fs_type} file system and is not formatted; erase it yourself if its data is not needed"
            raise _refused(volume, device, problem, fix)
        return False

    async def make(self, volume: StorageVolume, device: str) -> None:
        """Format the device. Raises Unavailable or TimedOut, and then its content is unknown."""
        result = await self._run(volume, [*MAKE_COMMANDS[volume.fs_type], "--", device], LONG_SECONDS)
        if result.code != 0:
            raise result.problem(f"volume {volume.name}")
        log.info("Formatted a blank device", volume=volume.name, device=device, fs_type=volume.fs_type)

    async def _problem_with_blank(self, volume: StorageVolume, device: str, blkid: ProgramResult) -> str:
        """Return why a device on which blkid finds no signature is not blank; empty: it is."""
        if blkid.out.strip():
            return f"blkid found {blkid.out.strip()!r}"
        wipefs = await self._run(volume, [*WIPEFS, device], LOOK_SECONDS)
        if problem := problem_with_wipefs(wipefs.code, wipefs.out):
            return problem
        probe = [*PROBE, str(self._namespace.path(device))]
        found = await self._commands.run(probe, seconds=LOOK_SECONDS, volume=volume.name)
        if found.code == 0:
            return ""
        return found.out or f"the look at its bytes failed with exit status {found.code}"

    async def _check(self, volume: StorageVolume, device: str) -> None:
        command = _CHECK_COMMANDS.get(volume.fs_type)
        if command is None:
            return
        result = await self._run(volume, [*command, "--", device], LONG_SECONDS)
        if result.code & _NOT_REPAIRED:
            text = " ".join(result.out.split())[:300]
            raise Unavailable(
                f"volume {volume.name}: fsck does not repair {device} without questions: {text}; "
                "attach it yourself and run fsck"
            )
        if result.code >= _FAILED or result.code < 0:
            raise result.problem(f"volume {volume.name}")
        if result.code:
            log.warning("Repaired a file system", volume=volume.name, device=device, exit_status=result.code)

    async def _run(self, volume: StorageVolume, command: list[str], seconds: float) -> ProgramResult:
        return await self._commands.run(self._namespace.command(command), seconds=seconds, volume=volume.name)


def _refused(volume: StorageVolume, device: str, problem: str, fix: str) -> InvalidConfig:
    return InvalidConfig(obj=f"volume {volume.name}", field=f"device {device}", problem=problem, fix=fix)
