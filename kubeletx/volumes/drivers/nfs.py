"""`NfsDriver`: volume driver for nfs volumes, mounted by the system's mount helper (Debian package nfs-common).

A server that does not answer blocks the threads that mount and unmount its exports; `working` has threads for that.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kubeletx.api import (
    BaseVolumeDriver,
    Blocking,
    InvalidPod,
    ReadyVolume,
    VolumeCapabilities,
    VolumeRequest,
)
from kubeletx.api.names import Event
from kubeletx.linux.mounts import find_mount

from ..mounting import Mounter

NAME: Final = "nfs"
SOURCES: Final = ("nfs",)
_CAPABILITIES: Final = VolumeCapabilities(fs_group=False, selinux_relabel=False)


class NfsDriver(BaseVolumeDriver):
    """Volume driver that mounts NFS exports, one mount for each pod. Implements `kubeletx.api.VolumeDriver`."""

    def __init__(self, mounter: Mounter, working: Blocking) -> None:
        """`working`: runs calls that a server may block."""
        self._mounter = mounter
        self._working = working

    async def prepare(self, request: VolumeRequest) -> ReadyVolume:
        server, path = request.options.get("server", ""), request.options.get("path", "")
        if not server or not str(path).startswith("/"):
            raise InvalidPod(
                field="nfs",
                problem="needs a server and an absolute path",
                fix="name the export as the server does",
                reason=Event.FAILED_MOUNT,
            )
        await self._working(self._mount, request, _export(server, path))
        return ReadyVolume(read_only=request.read_only, capabilities=_CAPABILITIES)

    async def release(self, request: VolumeRequest) -> None:
        await self._working(self._mounter.unmount, Path(request.target))

    def _mount(self, request: VolumeRequest, export: str) -> None:
        target = Path(request.target)
        if find_mount(self._mounter.mounts(target), target) is None:
            options = (*request.mount_options, *(("ro",) if request.read_only else ()))
            self._mounter.mount_by_helper(export, target, fstype="nfs", options=options)


def _export(server: str, path: str) -> str:
    """Return ``server:path`` for mount(8), with an IPv6 address in brackets."""
    host = f"[{server}]" if ":" in server and not server.startswith("[") else server
    return f"{host}:{path}"
