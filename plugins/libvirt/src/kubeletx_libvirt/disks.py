"""The root disk of a machine: a temporary overlay on the base image, one per pod.

It is in a directory of the pod, not of the unit: a restart in place (the next attempt of the same pod) continues with
it. Another image, or another pod UID, gets a new one; so does every attempt of a machine that does not keep its disk
(``shutdownBehavior: terminate``).
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path

import msgspec

from kubeletx.api import Internal, Machine, PodUid, SourceKind, UnitSpec
from kubeletx_libvirt.access import give
from kubeletx_libvirt.domain.xml import Disk
from kubeletx_libvirt.images.qcow2 import backing_file, write_overlay


class Base(msgspec.Struct, frozen=True, kw_only=True):
    """The image disk on which overlays are made."""

    path: str
    format: str
    virtual_size_bytes: int


def pod_directory(state_directory: Path, uid: PodUid) -> Path:
    """Directory of the pod's disks."""
    return state_directory / "disks" / hashlib.sha256(uid.encode()).hexdigest()[:24]


def overlay_path(directory: Path, unit: UnitSpec, machine: Machine) -> Path:
    """Path of the root disk: the same for all attempts of a pod with the same image.

    With `keep_disk` False each attempt has its own.
    """
    image = unit.image.ref or unit.image.requested
    key = hashlib.sha256(image.encode()).hexdigest()[:16]
    attempt = "" if machine.keep_disk else f"-{unit.attempt}"
    return directory / f"root-{key}{attempt}.qcow2"


def make_overlay(path: Path, base: Base, size_bytes: int | None, gid: int | None = None) -> None:
    """Make the overlay unless it exists; overlays of other images are removed. Blocking.

    `size_bytes`: wanted size of the disk; never below the image's. `gid`: the emulators' group, if they need it.
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
        write_overlay(temporary, backing=base.path, backing_format=base.format, size_bytes=size)
    except (OSError, ValueError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise Internal(f"failed to make the root disk {path}: {error}") from error
    give(temporary, gid, 0o600 if gid is None else 0o660)
    temporary.replace(path)


def remove_disks(directory: Path) -> None:
    """Remove the pod's disks; succeeds if there are none. Blocking."""
    with contextlib.suppress(FileNotFoundError):  # removed before: the call is idempotent
        shutil.rmtree(directory)


def base_paths(state_directory: Path) -> set[str]:
    """Paths of the images below all overlays, those of ended machines included. Blocking."""
    found: set[str] = set()
    for path in (state_directory / "disks").glob("*/root-*.qcow2*"):
        with contextlib.suppress(FileNotFoundError):  # its pod ended meanwhile
            found.add(backing_file(path) or "")
    return found


def volume_disks(unit: UnitSpec, machine: Machine) -> tuple[Disk, ...]:
    """Block devices and disk images among the mounts, in order; the boot volume is marked."""
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
    """Serial number of a disk: the guest finds it as /dev/disk/by-id/virtio-SERIAL; at most 20 characters (virtio)."""
    clean = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in name.strip("/"))
    if len(clean) <= 20:
        return clean
    return f"{clean[:13]}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
