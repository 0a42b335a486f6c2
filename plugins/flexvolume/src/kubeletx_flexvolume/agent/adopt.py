"""Journals for volumes whose journal is lost, rebuilt from the mount table. Pure, but for what backends look up.

    <root>/plugins/kubeletx.io/storage/mounts/NAME           the volume, mounted once for the node
    <root>/pods/UID/volumes/kubeletx.io~storage/NAME         a pod's mount of it
    <root>/pods/UID/volumeDevices/kubeletx.io~storage/NAME   a pod's device of it

Paths and the mounted device are known from there, and backends recognize their devices. The pods' names are lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from kubeletx.api import KubeletxError
from kubeletx.linux.mounts import MountPoint

from ..backends.registry import Backends
from ..values import Holder, HolderStatus, StorageVolume
from .journal import Content, Mark, Use, VolumeJournal
from .paths import TargetPath, check_volume_name, global_directory, parse_target


class FoundVolume(msgspec.Struct, frozen=True, kw_only=True):
    """A volume that is mounted. `base`: its mount for the node; None: only pods have it."""

    name: str
    kubelet_root: str
    base: MountPoint | None
    binds: tuple[tuple[TargetPath, MountPoint], ...]


def find_volumes(table: Sequence[MountPoint], kubelet_roots: Iterable[str]) -> tuple[FoundVolume, ...]:
    """Return the volumes of the driver that the mount table shows. `kubelet_roots`: real paths."""
    roots = {root: root for root in kubelet_roots}
    bases = {mount.target: mount for mount in table}
    binds = [
        (target, _with_device(mount) if target.is_block else mount)
        for mount in table
        if (target := _target(mount.target, roots)) is not None
    ]
    found, left = [], list({target.path: (target, one) for target, one in binds}.values())
    for root in roots:
        for path, base in bases.items():
            name = path.rpartition("/")[2]
            if path == global_directory(root, name) and _is_name(name):
                own = tuple(pair for pair in left if pair[1].has_same_files(base))
                left = [pair for pair in left if pair not in own]
                found.append(FoundVolume(name=name, kubelet_root=root, base=base, binds=own))
    found += [
        FoundVolume(name=target.name, kubelet_root=target.kubelet_root, base=None, binds=((target, one),))
        for target, one in left
    ]
    return tuple(found)


def rebuild_journal(found: FoundVolume, backends: Backends, *, node: str, boot_id: str) -> VolumeJournal:
    """Return the journal of a volume that is mounted. Its entries may be in its record."""
    shown = found.base or found.binds[0][1]
    uses = [
        Use(
            holder=Holder(
                node=node,
                boot_id=boot_id,
                pod_namespace="",
                pod="",
                pod_uid=target.pod_uid,
                mount_dir=target.path,
                read_only=entry.is_read_only,
                device=entry.source,
                status=HolderStatus.MOUNTED,
            ),
            is_mounted=True,
            taken=Mark.MAY,
            bound=Mark.YES,
        )
        for target, entry in found.binds
    ]
    volume = backends.identify(found.name, shown)
    return VolumeJournal(
        volume=msgspec.structs.replace(
            volume or StorageVolume(name=found.name, backend="", image=found.name),
            is_block=any(target.is_block for target, _ in found.binds),
        ),
        boot_id=boot_id,
        kubelet_root=found.kubelet_root,
        global_dir=global_directory(found.kubelet_root, found.name),
        attached=Mark.NO if volume is None else Mark.MAY,
        content=Content.READY,
        mounted=Mark.NO if found.base is None else Mark.YES,
        is_writable=not shown.is_read_only,
        uses=tuple(uses),
    )


def _with_device(one: MountPoint) -> MountPoint:
    """Return the entry with the device whose file is mounted as its source."""
    return msgspec.structs.replace(one, source=one.device_path or one.source)


def _target(path: str, roots: Mapping[str, str]) -> TargetPath | None:
    try:
        return parse_target(path, roots)
    except KubeletxError:
        return None


def _is_name(name: str) -> bool:
    try:
        check_volume_name(name)
    except KubeletxError:
        return False
    return True
