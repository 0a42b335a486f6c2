"""Mounts the block device of a local persistent volume with volumeMode Filesystem, and formats it if it is blank.

blkid(8) finding nothing does not prove that a device is blank: it answers the same for a device that it cannot read. So
two more looks must agree, and an error of any of them means that the device is not formatted: wipefs(8) finds no
signature; and the device can be opened exclusively (it is not mounted and no other driver of the kernel uses it), is
writable, and is zero in its first and last MiB. Data without a known signature, such as that of a database or an
encrypted device, is never overwritten.

A lock on the device keeps pods that start together from formatting it twice. All calls block.

Source: kubelet, pkg/volume/local; mount-utils, SafeFormatAndMount.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import TimedOut, Unavailable
from kubeletx.api.names import Event
from kubeletx.linux.mounts import find_mount
from kubeletx.linux.programs import ProgramResult, run_blocking

from .files.safe_paths import make_private
from .mounting import HELPER_SECONDS, Mounter

log = structlog.get_logger(__name__)

DEFAULT_FS_TYPE: Final = "ext4"
_MKFS_OPTIONS: Final = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0")}
_BLKROGET: Final = 0x125E
_CHECKED_BYTES: Final = 1 << 20
_BLKID_NOTHING: Final = 2
_FSCK_CLEAN, _FSCK_UNCORRECTED = (0, 1), 4
_NAME: Final = re.compile(r"[a-z0-9_-]*")


def mount_device(
    mounter: Mounter, device: str, target: Path, *, fs_type: str, options: Sequence[str] = (), read_only: bool
) -> None:
    """Mount the file system of a block device on `target`, and create one if the device is blank.

    Does nothing if something is mounted there. `fs_type`: file system that the device should have; empty: any, and
    ext4 for a new one. Raises Unavailable, with what to do, if the device must not be formatted or cannot be mounted.
    """
    if find_mount(mounter.mounts(target), target) is not None:
        return
    if not _NAME.fullmatch(fs_type):
        raise _refused(device, f"fsType {fs_type!r} is no name of a file system")
    make_private(target)
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        real = os.path.realpath(device)
        others = [one for one in mounter.mounts() if os.path.realpath(one.source) == real]
        # the kernel has one mode for all mounts of a device; the container's own mount is read-only in any case
        with_ro = read_only and not any("rw" in one.super_options for one in others)
        found = _file_system(device)
        if not found:
            found = fs_type or DEFAULT_FS_TYPE
            _format(device, found, read_only)
        elif fs_type and found != fs_type:
            raise _refused(device, f"it has a file system {found}, and the volume asks for fsType {fs_type}")
        elif not with_ro and not others:
            _repair(device)
        mounter.mount_by_helper(
            device, target, fstype=found, options=(*options, *(("ro",) if with_ro else ()))
        )
    finally:
        os.close(descriptor)


def _file_system(device: str) -> str:
    """Return the type of the device's file system; empty if blkid finds nothing or cannot read the device."""
    done = _run("blkid", "-p", "-s", "TYPE", "-s", "PTTYPE", "-o", "export", "--", device)
    values = dict(line.partition("=")[::2] for line in done.stdout.decode(errors="replace").split("\n"))
    if done.exit_code == _BLKID_NOTHING and not done.stdout.strip():
        return ""
    if table := values.get("PTTYPE"):
        raise _refused(device, f"it has a partition table ({table}); use a device without one")
    if done.exit_code != 0 or not values.get("TYPE"):
        raise _failed(done, f"find out what is on {device}")
    return values["TYPE"]


def _format(device: str, fs_type: str, read_only: bool) -> None:
    if read_only:
        raise _refused(device, "it is empty, and is not formatted for a claim that is read-only")
    done = _run("wipefs", "--no-act", "--", device)
    if done.exit_code != 0:
        raise _failed(done, f"look for signatures on {device}")
    signatures = " ".join(done.stdout.decode(errors="replace").split())
    problem = f"wipefs finds {signatures}" if signatures else _content(device)
    if problem:
        raise _refused(
            device,
            f"it is not formatted, because {problem}; if nothing on it is needed, erase it (blkdiscard, or wipefs -a "
            "and zeros over its first and last MiB)",
        )
    done = _run(f"mkfs.{fs_type}", *_MKFS_OPTIONS.get(fs_type, ()), device)
    if done.exit_code != 0:
        raise _failed(done, f"format {device}")
    log.info("Formatted a device", device=device, fs_type=fs_type)


def _content(device: str) -> str:
    """Return why the device is not blank; empty if it is."""
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_EXCL | os.O_CLOEXEC)
    except OSError as error:
        return "it is in use" if error.errno == errno.EBUSY else f"it cannot be read: {error.strerror}"
    try:
        if struct.unpack("i", fcntl.ioctl(descriptor, _BLKROGET, bytes(4)))[0]:
            return "it is read-only"
        size = os.lseek(descriptor, 0, os.SEEK_END)
        if size < _CHECKED_BYTES:
            return f"it has only {size} bytes"
        zeros = bytes(_CHECKED_BYTES)
        for offset in (0, size - _CHECKED_BYTES):
            if os.pread(descriptor, _CHECKED_BYTES, offset) != zeros:
                return "it contains data that no program recognises"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    finally:
        os.close(descriptor)
    return ""


def _repair(device: str) -> None:
    done = _run("fsck", "-a", device)
    if done.exit_code == _FSCK_UNCORRECTED:
        raise _failed(done, f"repair {device}; run it by hand")
    if done.exit_code not in _FSCK_CLEAN:  # as in the kubelet: there is no fsck for every file system
        log.warning("Could not check a file system", device=device, exit_code=done.exit_code)


def _run(*command: str) -> ProgramResult:
    try:
        return run_blocking(command, seconds=HELPER_SECONDS)
    except FileNotFoundError as error:
        raise Unavailable(
            f"the node has no program {command[0]}; install it", reason=Event.FAILED_MOUNT
        ) from error
    except TimedOut as error:
        text = f"{command[0]} for {command[-1]} took longer than {HELPER_SECONDS:g} s; the device may hang"
        raise Unavailable(text, reason=Event.FAILED_MOUNT) from error


def _failed(done: ProgramResult, what: str) -> Unavailable:
    text = f"{done.name} could not {what}: exit status {done.exit_code}: {done.text}"
    return Unavailable(text, reason=Event.FAILED_MOUNT)


def _refused(device: str, why: str) -> Unavailable:
    return Unavailable(f"device {device} cannot be mounted: {why}", reason=Event.FAILED_MOUNT)
