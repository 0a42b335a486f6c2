"""Removes volumes: unmounts everything below a pod's directory, then removes the agent's own directories.

The mounts are found in the kernel's mount table. Volumes of volume drivers are released by their drivers first, as the
pod's journal has them. A directory is removed only if nothing is mounted in it, so that the removal never reaches a
hostPath, an NFS export or another pod. All calls block.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import msgspec

from kubeletx.api import PodUid, Unavailable
from kubeletx.api.names import Event
from kubeletx.linux.mounts import mounts_below

from . import layout
from .files.safe_paths import remove_tree
from .mounting import Mounter, mount_error


class Orphan(msgspec.Struct, frozen=True, kw_only=True):
    """A pod directory on disk whose pod the agent does not know.

    `mounts`: paths of the mount points in it, in mount order.
    """

    uid: PodUid
    path: Path
    mounts: tuple[str, ...] = ()


def tear_down(root_dir: Path, uid: PodUid, mounter: Mounter) -> bool:
    """Unmount everything below the pod's directory, remove its volumes and subPath directories, and return True.

    Returns False, and does nothing, while the pod has a journal: its volumes must be released by their drivers first.
    Idempotent. Raises Unavailable while a mount is in use.
    """
    directory = layout.pod_dir(root_dir, uid)
    if os.path.lexists(directory / layout.JOURNAL):
        return False
    _unmount_below(directory, mounter)
    for part in (layout.VOLUMES, layout.SUB_PATHS):
        _remove(directory / part)
    return True


def unmount_sub_paths(root_dir: Path, uid: PodUid, mounter: Mounter) -> None:
    """Unmount the bind mounts of the pod's subPath mounts, which keep their volumes in use.

    Raises Unavailable while one is in use.
    """
    _unmount_below(layout.subpaths_dir(root_dir, uid), mounter)


def remove_pod_directory(root_dir: Path, uid: PodUid, mounter: Mounter) -> None:
    """Remove the pod's whole directory. Raises Unavailable while something is mounted in it, or it has a journal."""
    directory = layout.pod_dir(root_dir, uid)
    if os.path.lexists(layout.journal_path(root_dir, uid)):
        raise Unavailable(
            f"{directory} still has volumes of volume drivers; release volumes first",
            reason=Event.FAILED_KILL_POD,
        )
    real = directory.parent.resolve() / directory.name
    left = mounts_below(mounter.mounts(real), real)
    if left:
        raise Unavailable(
            f"{directory} still holds {len(left)} mounts, the first on {left[0].target}; release volumes first",
            reason=Event.FAILED_KILL_POD,
        )
    _remove(directory)


def find_orphans(root_dir: Path, known: frozenset[PodUid], mounter: Mounter) -> tuple[Orphan, ...]:
    """Return the directories below ``pods/`` whose pod UID is not in `known`, sorted by UID."""
    pods = layout.pods_dir(root_dir)
    try:
        uids = sorted(
            PodUid(entry.name) for entry in pods.iterdir() if entry.is_dir() and not entry.is_symlink()
        )
    except FileNotFoundError:
        return ()
    mounts, real = mounter.mounts(), pods.resolve()
    return tuple(
        Orphan(
            uid=uid,
            path=pods / uid,
            mounts=tuple(mount.target for mount in mounts_below(mounts, real / uid)),
        )
        for uid in uids
        if uid not in known
    )


def _unmount_below(directory: Path, mounter: Mounter) -> None:
    real = directory.parent.resolve() / directory.name
    for mount in reversed(mounts_below(mounter.mounts(real), real)):
        try:
            mounter.unmount(Path(mount.target))
        except OSError as err:
            if err.errno == errno.EBUSY:
                raise Unavailable(
                    f"{mount.target} is still in use and cannot be unmounted yet",
                    reason=Event.FAILED_KILL_POD,
                ) from err
            raise mount_error("cannot unmount a volume", err) from err


def _remove(path: Path) -> None:
    try:
        remove_tree(path)
    except OSError as err:
        if err.errno == errno.EBUSY:
            raise Unavailable(
                f"{path} holds a mount point ({err.filename}) and was left in place; unmount it",
                reason=Event.FAILED_KILL_POD,
            ) from err
        raise mount_error(f"cannot remove {path}", err) from err
