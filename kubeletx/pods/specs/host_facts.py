"""Detects features of the node at start: huge pages, swap, recursive read-only mounts.

The results become fields of `NodeContext`. A feature whose file cannot be read counts as absent.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.node.cgroups.text import read_meminfo

_PAGES: Final = re.compile(r"hugepages-(\d+)kB")
_RECURSIVE_READ_ONLY: Final = (5, 12)
"""First kernel version with mount_setattr(2)."""


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Detected features of the node; `NodeContext` explains the fields, which have the same names there."""

    hugepage_sizes: tuple[str, ...] = ()
    swap_capacity_bytes: int = 0
    swap_controller: bool = False
    recursive_read_only: bool = False


def read_host_facts(cgroup_version: int, root: Path = Path("/"), release: str | None = None) -> HostFacts:
    """Detect the features of the node this process runs on.

    `cgroup_version`: 1 or 2. `root`: directory that contains ``sys`` and ``proc``. `release`: kernel release, such as
    ``6.8.0``; None: the running kernel's.
    """
    return HostFacts(
        hugepage_sizes=_hugepage_sizes(root / "sys/kernel/mm/hugepages"),
        swap_capacity_bytes=read_meminfo(root / "proc/meminfo").get("SwapTotal", 0),
        swap_controller=_has_swap_controller(root, cgroup_version),
        recursive_read_only=_version(release or os.uname().release) >= _RECURSIVE_READ_ONLY,
    )


def page_size_name(size_bytes: int) -> str:
    """Format a huge page size as the kernel does: 2097152 is ``2MB``."""
    size, units = size_bytes, ["B", "KB", "MB", "GB"]
    while size >= 1024 and len(units) > 1:
        size, units = size // 1024, units[1:]
    return f"{size}{units[0]}"


def _hugepage_sizes(directory: Path) -> tuple[str, ...]:
    try:
        sizes = [int(match[1]) for entry in directory.iterdir() if (match := _PAGES.fullmatch(entry.name))]
    except OSError:
        return ()
    return tuple(page_size_name(kib * 1024) for kib in sorted(sizes))


def _has_swap_controller(root: Path, cgroup_version: int) -> bool:
    cgroups = root / "sys/fs/cgroup"
    if cgroup_version == 1:
        # v1 has this file only if the kernel accounts swap (option swapaccount).
        return (cgroups / "memory/memory.memsw.limit_in_bytes").exists()
    # The root cgroup has no memory.swap.max; the kernel shows it in every child with a memory controller.
    try:
        below = [cgroup for cgroup in cgroups.iterdir() if (cgroup / "memory.max").exists()]
    except OSError:
        return False
    return any((cgroup / "memory.swap.max").exists() for cgroup in below) if below else _may_limit_swap(root)


def _may_limit_swap(root: Path) -> bool:
    """Return True if new cgroups will have memory.swap.max. Used while no cgroup has the memory controller.

    This applies to a node without systemd, before the agent or a runtime makes the first cgroup.
    """
    try:
        controllers = (root / "sys/fs/cgroup/cgroup.controllers").read_text().split()
        options = (root / "proc/cmdline").read_text().split()
    except OSError:
        return False
    return "memory" in controllers and "swapaccount=0" not in options and (root / "proc/swaps").exists()


def _version(release: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
