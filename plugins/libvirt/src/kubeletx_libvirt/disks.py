"""The root disk of a machine: a qcow2 overlay on the base image, one per pod, removed with the pod.

The disk is in a directory of the pod, not of the unit. So a restart in place (the next attempt of the same
pod) continues with the same disk. With another image, or another pod UID, a new disk is made. A machine that
does not keep its disk (``shutdownBehavior: terminate``) gets a new one at every attempt.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path

from kubeletx.api import Internal, Machine, PodUid, SourceKind, UnitSpec
from kubeletx_libvirt.access import give
from kubeletx_libvirt.domain.xml import Disk
from kubeletx_libvirt.images.qcow2 import backing_file, write_overlay
from kubeletx_libvirt.images.service import BaseDisk


def pod_directory(state_directory: Path, uid: PodUid) -> Path:
    """Return the directory of the pod's disks."""
    return state_directory / "disks" / hashlib.sha256(uid.encode()).hexdigest()[:24]


def overlay_path(directory: Path, unit: UnitSpec, machine: Machine) -> Path:
    """Return the path of the root disk: the same for all attempts of a pod with the same image.

    If `machine.keep_disk` is False, each attempt has its own disk.
    """
    image = unit.image.ref or unit.image.requested
    key = hashlib.sha256(image.encode()).hexdigest()[:16]
    attempt = "" if machine.keep_disk else f"-{unit.attempt}"
    return directory / f"root-{key}{attempt}.qcow2"


def make_overlay(path: Path, base: BaseDisk, size_bytes: int | None, gid: int | None = None) -> None:
    """Make the overlay unless it exists; overlays on other images are removed. Blocking.

    `size_bytes`: requested size of the disk; the disk is never smaller than the image's. None: the image's
    size. `gid`: group of the emulators; None if they run as root.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for directory in (path.parent.parent, path.parent):
        give(directory, gid, 0o700 if gid is None else 0o710)
    for other in path.parent.glob("root-*.qcow2*"):
        if other != path:
            other.unlink()
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.new")
    size = max(size_bytes or 0, base.virtual_size_bytes)
    try:
        write_overlay(temporary, backing=str(base.path), backing_format=base.format, size_bytes=size)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise Internal(f"failed to make the root disk {path}: {error}") from error
    give(temporary, gid, 0o600 if gid is None else 0o660)
    temporary.replace(path)


def remove_disks(directory: Path) -> None:
    """Remove the directory with a pod's disks; succeeds if it does not exist. Blocking."""
    with contextlib.suppress(FileNotFoundError):  # removed before: the call is idempotent
        shutil.rmtree(directory)


def base_paths(state_directory: Path) -> set[str]:
    """Return the paths of the images on which overlays exist, including overlays of ended machines. Blocking."""
    bases: set[str] = set()
    for path in (state_directory / "disks").glob("*/root-*.qcow2*"):
        with contextlib.suppress(FileNotFoundError):  # its pod ended meanwhile
            bases.add(backing_file(path) or "")
    return bases


def volume_disks(unit: UnitSpec, machine: Machine) -> tuple[Disk, ...]:
    """Return the unit's volumes that are block devices or disk images, in the order of its mounts.

    The volume that the machine boots from has `boot` set.
    """
    return tuple(
        Disk(
            path=mount.source,
            format=(mount.format or "raw") if mount.kind is SourceKind.DISK_IMAGE else "raw",
            is_block=mount.kind is SourceKind.BLOCK_DEVICE,
            read_only=mount.read_only,
            serial=disk_serial(mount.name or mount.target),
            boot=machine.boot_volume is not None and mount.name == machine.boot_volume,
        )
        for mount in unit.mounts
        if mount.kind in (SourceKind.BLOCK_DEVICE, SourceKind.DISK_IMAGE)
    )


def disk_serial(name: str) -> str:
    """Return the serial number for the disk of a volume, at most 20 characters (a limit of virtio).

    `name`: name of the volume. The guest finds the disk as /dev/disk/by-id/virtio-SERIAL.
    """
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name.strip("/"))
    if len(clean) <= 20:
        return clean
    return f"{clean[:13]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
