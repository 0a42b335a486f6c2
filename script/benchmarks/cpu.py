"""Processor time of everything that starts pods: containerd, shims, runc, the pods, and the clients.

On a shared machine wall-clock time also depends on other machines; processor time hardly does. This process and all
daemons that it starts are in a cgroup of their own; the pods' cgroups are added.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
NAME = "kubeletx-bench"
NO_PARENT = "k8s.io"
"""containerd's cgroup for pods that name no cgroup parent."""


class CpuAccount:
    """CPU time of everything that starts pods, from the cgroups that account for it."""

    def __init__(self, root: Path | None, pods: str) -> None:
        self._root = root
        self._pods = pods

    def seconds(self) -> float | None:
        """CPU seconds that the cgroups have used so far; None if the kernel does not account for them."""
        if self._root is None:
            return None
        return sum(_usage(self._root / name) for name in (NAME, self._pods, NO_PARENT))


@contextmanager
def cpu_account(pods: str) -> Iterator[CpuAccount]:
    """Context manager: accounts for this process, children that it starts from now on, and the cgroup `pods`."""
    root = MOUNT if (MOUNT / "cgroup.controllers").exists() else MOUNT / "cpuacct"
    own, before = root / NAME, _own_cgroup()
    try:
        own.mkdir(exist_ok=True)
        (own / "cgroup.procs").write_text(str(os.getpid()))
    except OSError:
        yield CpuAccount(None, pods)
        return
    try:
        yield CpuAccount(root, pods)
    finally:
        with suppress(OSError):
            (root / before / "cgroup.procs").write_text(str(os.getpid()))
            own.rmdir()


def _usage(directory: Path) -> float:
    try:
        return int((directory / "cpuacct.usage").read_text()) / 1e9
    except FileNotFoundError:
        pass
    try:
        return int((directory / "cpu.stat").read_text().split()[1]) / 1e6
    except FileNotFoundError:
        return 0.0


def _own_cgroup() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "" or "cpuacct" in controllers.split(","):
            found = path.lstrip("/")
            if controllers:
                return found
    return found
