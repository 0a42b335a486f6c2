"""Measures a mounted file system. All functions block, also for long if its storage does not answer."""

from __future__ import annotations

import os

from kubeletx.api import VolumeStats


def measure(path: str) -> VolumeStats:
    """Return the use of the file system at a path, as statvfs(3) has it. Raises OSError."""
    found = os.statvfs(path)
    return VolumeStats(
        capacity_bytes=found.f_blocks * found.f_frsize,
        used_bytes=(found.f_blocks - found.f_bfree) * found.f_frsize,
        available_bytes=found.f_bavail * found.f_frsize,
        inodes=found.f_files,
        inodes_used=found.f_files - found.f_ffree,
        inodes_free=found.f_ffree,
    )
