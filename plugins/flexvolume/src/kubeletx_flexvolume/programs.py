"""Programs of the node that work on one volume: what `device` and `mounts` need of the process that runs them.

The volume driver and the storage agent run programs differently. The driver's programs end with its process, or are ended
by the next one, and have the deadline of the call. Those of the agent run in the kubelet's mount namespace, and keep the
volume locked until they have ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from kubeletx.linux.mounts import MountPoint
from kubeletx.linux.programs import ProgramResult

LOOK_SECONDS: Final = 30.0
"""Deadline of programs that read a device."""
LONG_SECONDS: Final = 1800.0
"""Deadline of programs that take long on large devices, such as mkfs."""


class VolumePrograms(Protocol):
    """Runs programs for one volume, in the mount namespace in which pods find it."""

    @property
    def volume(self) -> str:
        """Name of the volume, for messages."""
        ...

    async def run(self, command: Sequence[str], seconds: float) -> ProgramResult:
        """Run a program and return its result, whatever its exit status is.

        Raises Unavailable if it cannot be started, and TimedOut after `seconds` at the latest.
        """
        ...

    async def probe(self, device: str, *, is_interrupted: bool) -> ProgramResult:
        """Run `blank_probe` for a device."""
        ...

    async def find_mount(self, path: str) -> MountPoint | None:
        """Return the topmost mount on a path; None if nothing is mounted there. Raises Unavailable."""
        ...
