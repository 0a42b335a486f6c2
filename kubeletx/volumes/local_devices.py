"""Mounts the block device of a local persistent volume with volumeMode Filesystem, and formats it if it is blank.

`kubeletx.linux.blank` says what proves that a device is blank. A lock on the device keeps pods that start together from
formatting it twice. Programs that write to it inherit the lock, and keep it if they hang in the kernel. All calls block.

Source: kubelet, pkg/volume/local; mount-utils, SafeFormatAndMount.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from kubeletx.api import TimedOut, Unavailable
from kubeletx.api.names import Event
from kubeletx.linux.blank import (
    BLKID,
    BLKID_NOTHING,
    PROBE,
    WIPEFS,
    parse_signature,
    problem_with_probe,
    problem_with_signature,
    problem_with_wipefs,
)
from kubeletx.linux.locks import lock_descriptor
from kubeletx.linux.mounts import find_mount
from kubeletx.linux.programs import Ending, ProgramResult, run_blocking

from .files.safe_paths import make_private
from .mounting import HELPER_SECONDS, Mounter

log = structlog.get_logger(__name__)

DEFAULT_FS_TYPE: Final = "ext4"
_MKFS_OPTIONS: Final = {"ext3": ("-F", "-m0"), "ext4": ("-F", "-m0")}
_FSCK_CLEAN, _FSCK_UNCORRECTED = (0, 1), 4
_WRITES: Final = Ending(survives_cancellation=True)
"""Half a repair, or half a file system, is worse than a late one: fsck and mkfs have no deadline.

They are not stopped if they print much, or if the agent ends. The pod's call has a deadline, after which `PodTurns` answers.
"""
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
        raise _refused(device, f"fsType {fs_type!r} is not the name of a file system")
    make_private(target)
    descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    try:
        lock_descriptor(descriptor, Path(device), waits=True)
        real = os.path.realpath(device)
        others = [mount for mount in mounter.mounts() if os.path.realpath(mount.source) == real]
        # the kernel has one mode for all mounts of a device; the container's own mount is read-only in any case
        with_ro = read_only and not any("rw" in mount.super_options for mount in others)
        present = _file_system(device, fs_type)
        if not present:
            present = fs_type or DEFAULT_FS_TYPE
            _format(device, present, read_only, descriptor)
        elif not with_ro and not others:
            _repair(device, descriptor)
        mounter.mount_by_helper(
            device, target, fstype=present, options=(*options, *(("ro",) if with_ro else ()))
        )
    finally:
        os.close(descriptor)


def _file_system(device: str, wanted: str) -> str:
    """Return the type of the device's file system; empty if blkid finds nothing or cannot read the device.

    Raises Unavailable for other content than a file system `wanted`; empty: any.
    """
    done = _run(*BLKID, device)
    if done.exit_code == BLKID_NOTHING and not done.out.strip():
        return ""
    if done.exit_code != 0:
        raise _failed(done, f"find out what is on {device}")
    signature = parse_signature(done.out)
    if problem := problem_with_signature(signature, wanted):
        raise _refused(device, problem)
    return signature.fs_type


def _format(device: str, fs_type: str, read_only: bool, lock: int) -> None:
    if read_only:
        raise _refused(device, "it is empty, and is not formatted for a claim that is read-only")
    done = _run(*WIPEFS, device)
    problem = problem_with_wipefs(done.exit_code, done.out)
    if not problem:
        done = _run(*PROBE, device)
        problem = problem_with_probe(done.exit_code, done.out)
    if problem:
        raise _refused(
            device,
            f"it is not formatted, because {problem}; if nothing on it is needed, erase it (blkdiscard, or wipefs -a "
            "and zeros over its first and last MiB)",
        )
    done = _run(f"mkfs.{fs_type}", *_MKFS_OPTIONS.get(fs_type, ()), device, lock=lock)
    if done.exit_code != 0:
        raise _failed(done, f"format {device}")
    log.info("Formatted a device", device=device, fs_type=fs_type)


def _repair(device: str, lock: int) -> None:
    done = _run("fsck", "-a", device, lock=lock)
    if done.exit_code == _FSCK_UNCORRECTED:
        raise _failed(done, f"repair {device}; run it by hand")
    if done.exit_code not in _FSCK_CLEAN:  # as in the kubelet: there is no fsck for every file system
        log.warning("Could not check a file system", device=device, exit_code=done.exit_code)


def _run(*command: str, lock: int | None = None) -> ProgramResult:
    """Run a program. `lock`: of the device, for a program that writes to it."""
    try:
        if lock is not None:
            return run_blocking(command, seconds=None, inherited=(lock,), ending=_WRITES)
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
