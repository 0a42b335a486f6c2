"""persistentVolumeClaim and ephemeral volumes whose persistent volume is of type local or hostPath.

See docs/kubelet-parity.md, row V9. The claim was resolved to a `ClusterVolume` before (`cluster_objects`); this module prepares
that volume. As in the kubelet, the pod's fsGroup is applied to a local volume but not to a hostPath, and a local
volume with volumeMode Filesystem may be a block device (`local_devices`): each pod has a mount of its own. Persistent
volumes of other types have volume drivers.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec.structs import replace

from kubeletx.api import ClusterVolume, KubeletxError, SourceKind, Unavailable
from kubeletx.api.names import Event
from kubeletx.kube.types.core import HostPathVolumeSource, Volume

from .. import layout
from ..cluster_objects import read
from ..files.ownership import set_group
from ..local_devices import mount_device
from ..prepared import PreparedVolume, SetUp, VolumeError
from ..references import claim_of
from . import host_path
from .empty_dir import make_volume_dir


def set_up(request: SetUp) -> PreparedVolume:
    """Prepare the persistent volume that the claim is bound to: check a path of the node."""
    source = request.volume.persistent_volume_claim
    field = f"{request.field}.{'ephemeral' if source is None else 'persistentVolumeClaim'}"
    claim = claim_of(request.pod, request.volume)
    if request.objects is None:
        raise VolumeError(
            field=field,
            problem=f'persistentvolumeclaim "{claim}" cannot be read',
            fix="this pod's source gives no cluster objects: use hostPath or nfs",
        )
    volume = read(request.objects.claims, claim)
    if volume is None:
        raise Unavailable(
            f'{field}: persistentvolumeclaim "{claim}" not found; create it', reason=Event.FAILED_MOUNT
        )
    if not volume.is_here:
        raise VolumeError(
            field=field,
            problem=f"the node affinity of volume {volume.name} excludes this node",
            fix="let the scheduler place the pod",
        )
    ready = _of_kind(request, volume, field)
    read_only = volume.read_only or (source is not None and source.read_only)
    return replace(ready, read_only=ready.read_only or read_only)


def _of_kind(request: SetUp, volume: ClusterVolume, field: str) -> PreparedVolume:
    match volume.kind:
        case "local":
            return _local(request, volume, field)
        case "hostPath":
            source = HostPathVolumeSource(path=volume.path, type=volume.check or None)
            return host_path.set_up(_with(request, source))
    driver = volume.source.get("driver")
    kind = f"{volume.kind}, driver {driver}" if driver else volume.kind or "unknown"
    raise VolumeError(
        field=field,
        problem=f"no volume driver serves volume {volume.name} ({kind})",
        fix="install a plugin that does, or use local, hostPath or nfs",
    )


def _local(request: SetUp, volume: ClusterVolume, field: str) -> PreparedVolume:
    try:
        mode = os.stat(volume.path).st_mode
    except FileNotFoundError as error:
        raise Unavailable(
            f"{field}: path {volume.path!r} of local volume {volume.name} does not exist; make or mount it",
            reason=Event.FAILED_MOUNT,
        ) from error
    source, kind = volume.path, SourceKind.DIRECTORY
    if volume.is_block:
        if not stat.S_ISBLK(mode):
            raise VolumeError(
                field=field,
                problem=f"{volume.path!r} of volume {volume.name} is not a block device",
                fix="name the device, or use volumeMode Filesystem",
            )
        kind = SourceKind.BLOCK_DEVICE
    elif stat.S_ISBLK(mode):
        source = _mount(request, volume, field)
        _share(request, source)
    elif stat.S_ISDIR(mode):
        _share(request, source)
    else:
        raise VolumeError(
            field=field,
            problem=f"{volume.path!r} of local volume {volume.name} is neither a directory nor a block device",
            fix="name a directory, or a device with or without a file system",
        )
    return PreparedVolume(name=request.volume.name, kind=kind, source=source, managed=False)


def _mount(request: SetUp, volume: ClusterVolume, field: str) -> str:
    """Mount the volume's block device for this pod, formatted if it is blank, and return the mount point."""
    target = layout.volume_dir(request.root_dir, request.pod.uid, layout.LOCAL_DEVICE, request.volume.name)
    claim = request.volume.persistent_volume_claim
    try:
        mount_device(
            request.mounter,
            volume.path,
            target,
            fs_type=volume.fs_type,
            options=volume.mount_options,
            read_only=claim is not None and claim.read_only,
        )
    except KubeletxError as error:
        error.message = f"{field}: local volume {volume.name}: {error}"
        raise
    return str(target)


def _share(request: SetUp, path: str) -> None:
    """Apply the pod's fsGroup to a writable local volume, following fsGroupChangePolicy.

    This is done once for each pod, as in a kubelet, so that later changes by containers are kept. An empty directory
    among the pod's volumes records that it was done.
    """
    security = request.pod.spec.security_context
    source = request.volume.persistent_volume_claim
    if request.fs_group is None or (source is not None and source.read_only):
        return
    done = layout.volume_dir(request.root_dir, request.pod.uid, layout.LOCAL, request.volume.name)
    if done.is_dir():
        return
    policy = security.fs_group_change_policy if security is not None else None
    set_group(Path(path), request.fs_group, only_on_mismatch=policy == "OnRootMismatch")
    make_volume_dir(done, layout.DIRECTORY_MODE)


def _with(request: SetUp, host_path: HostPathVolumeSource) -> SetUp:
    """Return a copy of the request with a hostPath volume in place of the claim."""
    return replace(request, volume=Volume(name=request.volume.name, host_path=host_path))
