"""Backend ``directory``: directories of a pool, bind-mounted. It needs no device and no format.

Option ``image`` is the name of the directory; option ``size`` only says that a missing one is made, as a directory has
no limit of its own. Nothing is attached, so a holder cannot be cut off from it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from kubeletx.api import Blocking
from kubeletx.linux.mounts import MountPoint

from ..values import StorageVolume
from .backend import AttachedSource, Backend, SourceType
from .pools import Pools

NAME: Final = "directory"


class DirectoryBackend(Backend):
    """Directories of pools. `table`: returns the mounts of the namespace that has the pools."""

    name = NAME
    unfenced = "a directory has no device that could be taken from its holder"

    def __init__(self, pools: Pools, blocking: Blocking, table: Callable[[], Sequence[MountPoint]]) -> None:
        self._pools = pools
        self._blocking = blocking
        self._table = table

    def check(self, volume: StorageVolume) -> None:
        self._pools.check(volume)

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        path = await self._blocking(self._pools.ensure_directory, volume)
        return AttachedSource(type=SourceType.DIRECTORY, source=path)

    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        if make:
            await self._blocking(self._pools.ensure_directory, volume)
        return await self._blocking(self._pools.identities, volume)

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        found = self._pools.image_at(_path_of(mount, self._table()))
        if found is None:
            return None
        return StorageVolume(name=name, backend=NAME, pool=found[0], image=found[1])


def _path_of(mount: MountPoint, table: Sequence[MountPoint]) -> str:
    """Return the path of the directory that a bind mount shows: by the mount that shows most of its file system."""
    bases = [one for one in table if one.device == mount.device and one.target != mount.target]
    base = min(bases, key=lambda one: len(one.root), default=None)
    if base is None:
        return ""
    return os.path.normpath(Path(base.target, os.path.relpath(mount.root, base.root)))
