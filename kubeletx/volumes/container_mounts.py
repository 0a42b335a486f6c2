"""`build_mounts`: translates the volume mounts of one container to `Mount`s, and makes their files and bind mounts.

The kernel resolves a subPath inside its volume. The result is bind-mounted into a directory that only the agent can
change, so that a container cannot redirect it later by replacing a link. All functions block.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import msgspec

from kubeletx.api import Device, InvalidPod, Mount, MountPropagation, SourceKind
from kubeletx.kube.text.expansion import MAX_PATH_BYTES, TooLong, UnknownName, expand_strictly
from kubeletx.kube.types.core import Container, Pod, PodUnit, VolumeMount

from . import layout
from .files.held import hold_directory
from .files.safe_paths import make_private
from .mounting import Mounter, ensure_shared
from .prepared import PreparedVolume, PreparedVolumes
from .subpath import check_sub_path, prepare_sub_path

HOSTS_TARGET: Final = "/etc/hosts"
HOSTS_MODE: Final = 0o644
MESSAGE_MODE: Final = 0o666
DEFAULT_MESSAGE_TARGET: Final = "/dev/termination-log"
_USE_DEVICE: Final = "rwm"
_READ_DEVICE: Final = "r"

_PROPAGATION: Final = {
    None: MountPropagation.PRIVATE,
    "": MountPropagation.PRIVATE,
    "None": MountPropagation.PRIVATE,
    "HostToContainer": MountPropagation.HOST_TO_CONTAINER,
    "Bidirectional": MountPropagation.BIDIRECTIONAL,
}


class MountRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs of `build_mounts` for one run of a container; `VolumePreparer.mounts_for` describes the fields."""

    pod: Pod
    container: PodUnit
    prepared: PreparedVolumes
    attempt: int
    environment: dict[str, str]
    hosts_text: str | None
    recursive_read_only: bool
    root_dir: Path
    mounter: Mounter

    def __repr__(self) -> str:
        return f"MountRequest({self.pod.ref}, {self.container.name}, attempt={self.attempt})"


class ContainerMounts(msgspec.Struct, frozen=True, kw_only=True):
    """Mounts and devices of one container, as they are passed to the runtime."""

    mounts: tuple[Mount, ...] = ()
    devices: tuple[Device, ...] = ()
    """Block volumes of a container. Block volumes of a virtual machine are in `mounts` instead."""


class MountError(InvalidPod):
    """Raised for a volume mount that cannot be made; the container waits with reason CreateContainerConfigError."""

    def __init__(self, *, field: str, problem: str, fix: str = "") -> None:
        super().__init__(field=field, problem=problem, fix=fix, reason="CreateContainerConfigError")


def build_mounts(request: MountRequest) -> ContainerMounts:
    """Make and return the container's mounts: volumes in spec order, then hosts file and termination message file.

    Raises `MountError` for a mount that the spec does not allow, and other KubeletxErrors or OSError.
    """
    container = request.container
    mounts = [_volume_mount(request, index, mount) for index, mount in enumerate(container.volume_mounts)]
    devices, disks = _block_volumes(request)
    mounts += disks
    if isinstance(container, Container):
        mounts += _hosts_file(request, mounts)
        mounts += _termination_message(request, container)
    return ContainerMounts(mounts=tuple(mounts), devices=devices)


def _volume_mount(request: MountRequest, index: int, wanted: VolumeMount) -> Mount:
    field = f"container {request.container.name!r} volumeMounts[{index}]"
    volume = _volume(request, wanted.name, field)
    target = _absolute(wanted.mount_path)
    read_only = wanted.read_only or volume.read_only
    sub_path = _sub_path(request, wanted, field)
    if volume.image:
        return Mount(
            source="",
            target=target,
            name=volume.name,
            read_only=True,
            image=volume.image,
            image_sub_path=sub_path,
        )
    source = volume.source
    if sub_path:
        place = layout.subpath_target(
            request.root_dir, request.pod.uid, volume.name, request.container.name, index
        )
        source = prepare_sub_path(volume, sub_path, place, request.mounter, read_only=read_only, field=field)
    propagation = _propagation(request, wanted, field)
    if propagation is not MountPropagation.PRIVATE and volume.managed:
        # Runtimes refuse propagation on a private mount, and not every node's root mount is shared.
        ensure_shared(request.mounter, Path(source))
    return Mount(
        source=source,
        target=target,
        kind=volume.kind,
        name=volume.name,
        read_only=read_only,
        recursive_read_only=_recursive(request, wanted, field),
        propagation=propagation,
        selinux_relabel=volume.managed,
    )


def _volume(request: MountRequest, name: str, field: str) -> PreparedVolume:
    volume = request.prepared.volumes.get(name)
    if volume is None:
        raise MountError(field=f"{field}.name", problem=f"volume {name!r} is not among spec.volumes")
    return volume


def _sub_path(request: MountRequest, wanted: VolumeMount, field: str) -> str:
    if not wanted.sub_path_expr:
        return check_sub_path(wanted.sub_path or "", f"{field}.subPath")
    try:
        text = expand_strictly(wanted.sub_path_expr, request.environment, at_most=MAX_PATH_BYTES)
    except UnknownName as err:
        raise MountError(
            field=f"{field}.subPathExpr", problem=f"missing value for {err.name!r}", fix="add it to env"
        ) from err
    except TooLong as err:
        problem = f"{err} with its $(NAME) references replaced, and no path may be longer"
        raise MountError(field=f"{field}.subPathExpr", problem=problem, fix="shorten it") from err
    return check_sub_path(text, f"{field}.subPathExpr")


def _recursive(request: MountRequest, wanted: VolumeMount, field: str) -> bool:
    mode = wanted.recursive_read_only or "Disabled"
    if mode == "Disabled":
        return False
    if mode not in {"IfPossible", "Enabled"}:
        raise MountError(field=f"{field}.recursiveReadOnly", problem=f"{mode!r} is not known")
    if not wanted.read_only:
        raise MountError(
            field=f"{field}.recursiveReadOnly", problem=f"{mode} needs readOnly", fix="set readOnly: true"
        )
    if mode == "Enabled" and not request.recursive_read_only:
        raise MountError(
            field=f"{field}.recursiveReadOnly",
            problem="the runtime cannot make mounts read-only recursively",
            fix="use IfPossible, or another runtime",
        )
    return request.recursive_read_only


def _propagation(request: MountRequest, wanted: VolumeMount, field: str) -> MountPropagation:
    if wanted.mount_propagation not in _PROPAGATION:
        raise MountError(
            field=f"{field}.mountPropagation", problem=f"{wanted.mount_propagation!r} is not known"
        )
    propagation = _PROPAGATION[wanted.mount_propagation]
    security = getattr(request.container, "security_context", None)
    if propagation is MountPropagation.BIDIRECTIONAL and not (security is not None and security.privileged):
        raise MountError(
            field=f"{field}.mountPropagation",
            problem="Bidirectional is for privileged containers only",
            fix="use HostToContainer",
        )
    return propagation


def _block_volumes(request: MountRequest) -> tuple[tuple[Device, ...], list[Mount]]:
    devices: list[Device] = []
    disks: list[Mount] = []
    for index, wanted in enumerate(request.container.volume_devices):
        field = f"container {request.container.name!r} volumeDevices[{index}]"
        volume = _volume(request, wanted.name, field)
        if volume.kind is SourceKind.DIRECTORY:
            raise MountError(
                field=f"{field}.name",
                problem=f"volume {wanted.name!r} is not a block volume",
                fix="use volumeMounts",
            )
        if not isinstance(request.container, Container):
            disks.append(
                Mount(
                    source=volume.source,
                    target=wanted.device_path,
                    kind=volume.kind,
                    name=volume.name,
                    read_only=volume.read_only,
                )
            )
        else:
            allowed = _READ_DEVICE if volume.read_only else _USE_DEVICE
            devices.append(
                Device(container_path=wanted.device_path, host_path=volume.source, permissions=allowed)
            )
    return tuple(devices), disks


def _hosts_file(request: MountRequest, mounts: list[Mount]) -> list[Mount]:
    if request.hosts_text is None or any(mount.target == HOSTS_TARGET for mount in mounts):
        return []
    path = layout.hosts_path(request.root_dir, request.pod.uid)
    if not _holds(path, request.hosts_text.encode()):
        _write(path, request.hosts_text, HOSTS_MODE)
    return [Mount(source=str(path), target=HOSTS_TARGET, selinux_relabel=True)]


def _termination_message(request: MountRequest, container: Container) -> list[Mount]:
    path = layout.termination_message_path(request.root_dir, request.pod.uid, container.name, request.attempt)
    _write(path, "", MESSAGE_MODE)
    target = _absolute(container.termination_message_path or DEFAULT_MESSAGE_TARGET)
    return [Mount(source=str(path), target=target, selinux_relabel=True)]


def _absolute(path: str) -> str:
    return path if path.startswith("/") else f"/{path}"


def _holds(path: Path, data: bytes) -> bool:
    """Return True if the file contains exactly `data`; False also if it is missing or cannot be read.

    At most one byte more is read, since containers may make the file large.
    """
    try:
        with hold_directory(path.parent, depth=1) as directory:
            return directory.read(path.name, len(data)) == data
    except OSError:  # missing, or replaced by a container: written again
        return False


def _write(path: Path, text: str, mode: int) -> None:
    """Write the file in place, not by a rename: containers that have it mounted see only the existing inode."""
    make_private(path.parent)
    with hold_directory(path.parent, depth=1) as directory:
        status = directory.stat(path.name)
        if status is not None and not stat.S_ISREG(status.st_mode):  # no file of ours
            directory.unlink(path.name)
        fd = directory.open_or_create(path.name, os.O_WRONLY | os.O_TRUNC, mode)
    with os.fdopen(fd, "wb", buffering=0) as file:
        os.fchmod(fd, mode)
        if text:
            file.write(text.encode())
