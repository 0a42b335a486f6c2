"""`Backends`: the backends of one agent, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import Blocking, Clock, InvalidConfig
from kubeletx.linux.mounts import MountPoint

from ..commands import Commands
from ..values import StorageVolume
from .backend import Backend
from .directory import DirectoryBackend
from .fuse import FuseBackend
from .loop import LoopBackend
from .loop_devices import LoopDevices
from .nbd import NbdBackend
from .nfs import NfsBackend
from .pools import Pool, Pools
from .rbd import RbdBackend


class Backends:
    """Backends by name."""

    def __init__(self, backends: Iterable[Backend]) -> None:
        self.by_name: Final[Mapping[str, Backend]] = {backend.name: backend for backend in backends}

    def get(self, name: str) -> Backend:
        if name not in self.by_name:
            known = ", ".join(sorted(self.by_name))
            raise InvalidConfig(
                obj="volume",
                field="option backend",
                problem=f"{name!r} is unknown",
                fix=f"use one of {known}",
            )
        return self.by_name[name]

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        """Return the volume that a mount shows; None if no backend recognizes it."""
        found = (one.identify(name, mount) for one in self.by_name.values())
        return next((volume for volume in found if volume is not None), None)


def build_backends(
    pools: Mapping[str, Pool],
    *,
    commands: Commands,
    clock: Clock,
    blocking: Blocking,
    boot_id: str,
    state: Path,
    table: Callable[[], Sequence[MountPoint]],
) -> Backends:
    """Return all backends. `state`: parent of the directories that backends make.

    `table`: returns the mounts of the agent's own mount namespace, where pools and devices are.
    """
    found, devices = Pools(pools, boot_id), LoopDevices(commands, clock)
    return Backends(
        (
            LoopBackend(found, devices, blocking, boot_id=boot_id),
            DirectoryBackend(found, blocking, table),
            FuseBackend(
                found,
                devices,
                commands,
                blocking,
                directory=state / FuseBackend.name,
                boot_id=boot_id,
                table=table,
            ),
            NfsBackend(),
            RbdBackend(commands),
            NbdBackend(commands, blocking, directory=state / NbdBackend.name, boot_id=boot_id),
        )
    )
