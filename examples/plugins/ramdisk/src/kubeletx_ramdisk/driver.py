"""The driver: a volume is a tmpfs that is mounted on its target. The kernel's mount table is the only state."""

import asyncio
import os
from asyncio.subprocess import DEVNULL, PIPE

import msgspec

from kubeletx.api import (
    BaseVolumeDriver,
    InvalidPod,
    ReadyVolume,
    Unavailable,
    VolumeCapabilities,
    VolumeRequest,
    VolumeStats,
)
from kubeletx.kube.text import quantity


class Settings(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The section ``kubeletx.plugins.ramdisk`` of the configuration."""

    largest_mib: int = 1024
    """Largest size of a volume, in MiB."""


class Ramdisk(BaseVolumeDriver):
    """Mounts a file system in memory for each volume. Implements `kubeletx.api.VolumeDriver`."""

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        """Mount the file system, unless it is mounted."""
        size = size_of(request, self.settings.largest_mib << 20)
        if not await self._is_mounted(request):
            access = "ro" if request.read_only else "rw"
            options = ",".join((f"size={size}", access, *request.mount_options))
            await run("mount", "-t", "tmpfs", "-o", options, "ramdisk", request.target)
        can = VolumeCapabilities(stats=True, expand=True)
        return ReadyVolume(read_only=request.read_only, capabilities=can)

    async def release(self, request: VolumeRequest) -> None:
        """Unmount it with all its files. Only the target is needed, so a lost journal does no harm."""
        while await self._is_mounted(request):
            await run("umount", request.target)

    async def stats(self, request: VolumeRequest) -> VolumeStats:
        """Return the figures of the kernel."""
        fs = await self.host.blocking(os.statvfs, request.target)
        return VolumeStats(
            capacity_bytes=fs.f_blocks * fs.f_frsize,
            used_bytes=(fs.f_blocks - fs.f_bfree) * fs.f_frsize,
            available_bytes=fs.f_bavail * fs.f_frsize,
            inodes=fs.f_files,
            inodes_used=fs.f_files - fs.f_ffree,
            inodes_free=fs.f_ffree,
        )

    async def expand(self, request: VolumeRequest, size_bytes: int) -> int:
        """Mount it again with a new size, unless it is large enough."""
        size = (await self.stats(request)).capacity_bytes or 0
        if size < size_bytes:
            await run("mount", "-o", f"remount,size={size_bytes}", request.target)
        return max(size, size_bytes)

    async def _is_mounted(self, request: VolumeRequest) -> bool:
        return await self.host.blocking(os.path.ismount, request.target)


def size_of(request: VolumeRequest, largest: int) -> int:
    """Return the size of the volume in bytes. Raises InvalidPod for a size that is not allowed, and for a block volume."""
    if request.is_block:
        raise InvalidPod(field="volumeMode", problem="memory is not a block device", fix="write Filesystem")
    text = str(request.options.get("size") or request.capacity_bytes or "64Mi")
    try:
        size = quantity.to_bytes(text)
    except ValueError as error:
        raise InvalidPod(field="size", problem=f"{text!r} {error}", fix="write one, such as 64Mi") from error
    if not 0 < size <= largest:
        limit = quantity.from_bytes(largest)
        raise InvalidPod(field="size", problem=f"{text} is not allowed", fix=f"write one up to {limit}")
    return size


async def run(*command: str) -> None:
    """Run a program. When this ends, the program has ended too, also after a cancellation.

    Raises Unavailable with the program's message if it fails.
    """
    process = await asyncio.create_subprocess_exec(
        *command, stdin=DEVNULL, stdout=DEVNULL, stderr=PIPE, start_new_session=True
    )
    try:
        _, words = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise Unavailable(f"{command[0]} failed: {words.decode(errors='replace').strip()}")
