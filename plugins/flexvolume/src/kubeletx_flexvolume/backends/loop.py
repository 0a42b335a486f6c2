"""Backend ``loop``: sparse image files of a pool on loop devices. It needs no storage server.

Option ``image`` is the name of the file. The kernel that attaches an image is the only one that can write to it, unless
its pool is shared between machines: the loop devices of this kernel then prove nothing about others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kubeletx.api import Blocking
from kubeletx.linux.mounts import MountPoint

from ..values import AccessMode, Holder, StorageVolume
from .backend import AttachedSource, Backend, FenceResult, check_one_writer, device_source
from .loop_devices import LoopDevices
from .pools import Pools

NAME: Final = "loop"


class LoopBackend(Backend):
    """Image files of pools on loop devices. `boot_id`: of the running kernel. `blocking`: runs calls of files on threads."""

    name = NAME

    def __init__(self, pools: Pools, devices: LoopDevices, blocking: Blocking, *, boot_id: str) -> None:
        self._pools = pools
        self._devices = devices
        self._blocking = blocking
        self._boot_id = boot_id

    def check(self, volume: StorageVolume) -> None:
        self.check_modes(volume, volume.access_modes)

    def check_modes(self, volume: StorageVolume, modes: Sequence[AccessMode]) -> None:
        if self._pools.get(volume).is_shared:
            check_one_writer(volume, modes)

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        path = await self._blocking(self._pools.ensure_file, volume)
        return device_source(await self._devices.attach(path, volume=volume.name, read_only=read_only))

    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        if make:
            await self._blocking(self._pools.ensure_file, volume)
        return await self._blocking(self._pools.identities, volume)

    async def find(self, volume: StorageVolume) -> AttachedSource | None:
        device = self._devices.find(self._pools.image_path(volume))
        return None if device is None else device_source(device.device)

    async def detach(self, volume: StorageVolume, *, force: bool = False) -> None:
        await self._devices.detach(self._pools.image_path(volume), volume=volume.name, force=force)

    async def fence(self, volume: StorageVolume, holder: Holder) -> FenceResult:
        if self._pools.get(volume).is_shared:
            return FenceResult(fenced=False, why=f"other machines reach pool {volume.pool}, too")
        if holder.boot_id != self._boot_id:
            why = f"{holder.node} attached it under another kernel (boot ID {holder.boot_id or 'unknown'})"
            return FenceResult(fenced=False, why=why)
        return await self._look_for_users(volume)

    async def _look_for_users(self, volume: StorageVolume) -> FenceResult:
        """Return whether this machine has the image in use."""
        device = self._devices.find(self._pools.image_path(volume))
        if device is not None:
            return FenceResult(fenced=False, why=f"it is attached to this machine as {device.device}")
        return FenceResult(fenced=True, why="no loop device of this machine has its image")

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        found = self._pools.image_at(self._devices.file_of(mount.source))
        if found is None:
            return None
        return StorageVolume(name=name, backend=NAME, pool=found[0], image=found[1], fs_type=mount.fs_type)
