"""Backend ``nfs``: a directory of an NFS server, mounted with mount.nfs(8).

    SERVER:SHARE/IMAGE   options server, share (a path) and image

The agent mounts the directory once for the node, and never makes it. Each volume has a superblock of its own
(nosharecache), so that it can be made read-only without other volumes of the share.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kubeletx.linux.mounts import MountPoint

from ..values import StorageVolume
from .backend import HOST, PATH, AttachedSource, Backend, SourceType, check_word, parameter

NAME: Final = "nfs"


class NfsBackend(Backend):
    """Directories of NFS servers. Nothing is attached; the mount is all that there is."""

    name = NAME
    parameters = frozenset({"server", "share"})
    unfenced = "the agent cannot cut a client off from an NFS server"

    def check(self, volume: StorageVolume) -> None:
        _remote(volume)

    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        return AttachedSource(
            type=SourceType.REMOTE, source=_remote(volume), fs_type=NAME, mount_options=("nosharecache",)
        )

    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        host, _, path = _remote(volume).partition(":/")
        return (f"nfs {host.lower()} /{path}",)

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        server, colon, path = mount.source.partition(":/")
        share, _, image = f"/{path}".rpartition("/")
        if mount.fs_type not in (NAME, "nfs4") or not colon:
            return None
        parameters = {"server": server, "share": share or "/"}
        return StorageVolume(name=name, backend=NAME, image=image, parameters=parameters)


def _remote(volume: StorageVolume) -> str:
    server = parameter(volume, "server", HOST)
    share = parameter(volume, "share", PATH)
    check_word(volume, "image", volume.image)
    return f"{server}:{share.rstrip('/')}/{volume.image}"
