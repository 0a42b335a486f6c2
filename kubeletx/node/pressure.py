"""Measures the eviction signals (memory, processes, disks) from the kernel's files; `thresholds` evaluates them.

Available memory is the kernel's MemAvailable. Every measurement has a place: `NODE`, or the file system of image
stores. Image stores on one device share one place; a store on the node's own file system has the place `NODE`. A
measurement takes about ten microseconds. Source: kubelet, pkg/kubelet/eviction.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from kubeletx.api import RuntimeName

from .cgroups.text import read_meminfo
from .thresholds import MEMORY, NODE, PIDS, Observation

_PROC = Path("/proc")


class ImageDisk(msgspec.Struct, frozen=True, kw_only=True):
    """A file system that contains image stores.

    `place`: `NODE` if it is the node's own file system, else a name such as ``disk 8:16``. `path`: a directory on
    it. `runtimes`: names of the runtimes with a store on it.
    """

    place: str
    path: str
    runtimes: frozenset[RuntimeName]


def find_image_disks(root_dir: Path, mounts: Mapping[RuntimeName, tuple[str, ...]]) -> tuple[ImageDisk, ...]:
    """Return the file systems that contain image stores, one for each device.

    `root_dir`: a directory on the node's own file system. `mounts`: for each runtime, the paths where its image store
    keeps data; missing paths are left out.
    """
    disks: dict[int, ImageDisk] = {}
    own = _device(str(root_dir))
    for runtime, paths in mounts.items():
        for path in paths:
            device = _device(path)
            if device is None:
                continue
            place = NODE if device == own else f"disk {os.major(device)}:{os.minor(device)}"
            before = disks.get(device)
            runtimes = (before.runtimes if before is not None else frozenset()) | {runtime}
            disks[device] = ImageDisk(place=place, path=before.path if before else path, runtimes=runtimes)
    return tuple(disks.values())


NodeMeasure = Callable[
    [Path, Mapping[RuntimeName, tuple[str, ...]], float],
    tuple[tuple[ImageDisk, ...], tuple[Observation, ...]],
]
"""Type of `measure_node`."""


def measure_node(
    root_dir: Path, mounts: Mapping[RuntimeName, tuple[str, ...]], mono: float
) -> tuple[tuple[ImageDisk, ...], tuple[Observation, ...]]:
    """Return the file systems that contain image stores, and the eviction signals of the node."""
    disks = find_image_disks(root_dir, mounts)
    return disks, read_signals(root_dir, disks, mono=mono)


def read_signals(
    root_dir: Path, disks: tuple[ImageDisk, ...] = (), *, mono: float, proc: Path = _PROC
) -> tuple[Observation, ...]:
    """Measure the eviction signals; a signal that cannot be measured is left out.

    `root_dir`: a directory on the node's own file system. `disks`: from `find_image_disks`. `mono`: the current
    monotonic time in seconds.
    """
    return tuple(_read(root_dir, disks, mono, proc))


def _read(root_dir: Path, disks: tuple[ImageDisk, ...], mono: float, proc: Path) -> Iterator[Observation]:
    meminfo = read_meminfo(proc / "meminfo")
    if "MemAvailable" in meminfo and "MemTotal" in meminfo:
        yield Observation(
            signal=MEMORY, available=meminfo["MemAvailable"], capacity=meminfo["MemTotal"], at=mono
        )
    pids = _pids(proc)
    if pids is not None:
        yield Observation(signal=PIDS, available=pids[0], capacity=pids[1], at=mono)
    yield from _disk("nodefs", NODE, str(root_dir), mono)
    for disk in disks:
        for name in ("imagefs", "containerfs"):
            yield from _disk(name, disk.place, disk.path, mono)


def _disk(name: str, place: str, path: str, mono: float) -> Iterator[Observation]:
    try:
        disk = os.statvfs(path)
    except OSError:  # unmounted since the disks were listed
        return
    amounts = (
        ("available", disk.f_bavail * disk.f_frsize, disk.f_blocks * disk.f_frsize),
        ("inodesFree", disk.f_favail, disk.f_files),  # 0 of 0 where inodes are made as needed (btrfs)
    )
    for what, available, capacity in amounts:
        if capacity > 0:
            yield Observation(
                signal=f"{name}.{what}", place=place, available=available, capacity=capacity, at=mono
            )


def _device(path: str) -> int | None:
    try:
        return Path(path).stat().st_dev
    except OSError:
        return None


def _pids(proc: Path) -> tuple[int, int] | None:
    """Return the number of further processes that the kernel allows, and its limit; None if unknown."""
    try:
        limits = [int((proc / "sys/kernel" / name).read_text()) for name in ("pid_max", "threads-max")]
        running = int((proc / "loadavg").read_text().split()[3].partition("/")[2])
    except (OSError, ValueError, IndexError):
        return None
    return max(0, min(limits) - running), min(limits)
