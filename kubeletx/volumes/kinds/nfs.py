"""nfs volumes: an NFS export, mounted for this pod by the system's mount helper (Debian package nfs-common)."""

from __future__ import annotations

from .. import layout
from ..mountinfo import find_mount
from ..prepared import PreparedVolume, SetUp, VolumeError
from .empty_dir import make_volume_dir

MODE = 0o750


def set_up(request: SetUp, options: tuple[str, ...] = ()) -> PreparedVolume:
    """Mount the export in the pod's directory, unless it is mounted there already.

    `options`: mount options of a persistent volume, such as ``nfsvers=4.2``.
    """
    source = request.volume.nfs
    assert source is not None
    if not source.server or not source.path.startswith("/"):
        raise VolumeError(
            field=f"{request.field}.nfs",
            problem="needs a server and an absolute path",
            fix="name the export as the server does",
        )
    path = layout.volume_dir(request.root_dir, request.pod.uid, layout.NFS, request.volume.name)
    make_volume_dir(path, MODE)
    if find_mount(request.mounter.mounts(path), path) is None:
        chosen = (*options, *(("ro",) if source.read_only else ()))
        request.mounter.mount_by_helper(
            _export(source.server, source.path), path, fstype="nfs", options=chosen
        )
    return PreparedVolume(
        name=request.volume.name, source=str(path), read_only=source.read_only, managed=False
    )


def _export(server: str, path: str) -> str:
    """Return ``server:path`` for mount(8), with an IPv6 address in brackets."""
    host = f"[{server}]" if ":" in server and not server.startswith("[") else server
    return f"{host}:{path}"
