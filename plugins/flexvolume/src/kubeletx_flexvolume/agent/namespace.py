"""`MountNamespace`: the mount namespace in which the kubelet finds volumes.

The agent may run in a container, with a mount namespace of its own. Programs that mount are then started in the
kubelet's namespace with nsenter(1), and files there are reached through ``/proc/PID/root``. Source: nsenter(1),
proc(5).
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from kubeletx.api import InvalidConfig

_MAX_LINKS = 40


class MountNamespace:
    """Mount namespace of one process. `pid` None: the namespace of this process."""

    def __init__(self, pid: int | None = None, proc: Path = Path("/proc")) -> None:
        self._process = proc / ("self" if pid is None else str(pid))
        self._pid = pid

    @property
    def table_path(self) -> Path:
        """File with the mounts of the namespace."""
        return self._process / "mountinfo"

    def command(self, command: Sequence[str]) -> list[str]:
        """Return the command that runs `command` in the namespace."""
        if self._pid is None:
            return list(command)
        return ["nsenter", f"--mount={self._process}/ns/mnt", "--", *command]

    def path(self, path: str) -> Path:
        """Return the path by which this process reaches the namespace's absolute `path`."""
        return Path(path) if self._pid is None else self._process / "root" / path.lstrip("/")

    def real_path(self, path: str) -> str:
        """Resolve all links in the namespace's absolute `path`. Parts that do not exist stay as they are."""
        done, left, links = "", [part for part in path.split("/") if part], 0
        while left:
            part = left.pop(0)
            if part == "..":
                done = done.rpartition("/")[0]
                continue
            step = f"{done}/{part}"
            try:
                text = os.readlink(self.path(step))
            except OSError:
                done = step
                continue
            links += 1
            if links > _MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            done = "" if text.startswith("/") else done
            left = [*(one for one in text.split("/") if one not in ("", ".")), *left]
        return done or "/"

    @contextlib.contextmanager
    def open_root(self) -> Iterator[int]:
        """Yield a descriptor of the namespace's root directory."""
        root = "/" if self._pid is None else f"{self._process}/root"
        descriptor = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def check(self) -> None:
        """Raise InvalidConfig if the namespace cannot be entered."""
        try:
            (self._process / "ns" / "mnt").stat()
        except OSError as error:
            raise InvalidConfig(
                obj="storage agent",
                field="--mount-namespace-of",
                problem=f"{self._pid}: {error.strerror}",
                fix="give the PID of a process in the kubelet's mount namespace; a pod needs hostPID for that",
            ) from error
