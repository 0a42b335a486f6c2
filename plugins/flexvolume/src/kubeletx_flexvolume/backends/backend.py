"""`Backend`: one kind of storage, such as image files on loop devices.

The agent calls a backend for one volume at a time, after it has journaled the step. Every call may be repeated.
Options become arguments of programs, so their syntax is narrow.
"""

from __future__ import annotations

import enum
import errno
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from kubeletx.api import InvalidConfig, Unavailable
from kubeletx.linux.mounts import MountPoint

from ..values import AccessMode, Holder, StorageVolume

WORD: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z._]{0,252}")
HOST: Final = re.compile(r"[0-9A-Za-z][-0-9A-Za-z.]{0,252}|\[[0-9A-Fa-f:.]{2,45}\]")
HOSTS: Final = re.compile(r"[0-9A-Za-z\[][-0-9A-Za-z.:,\[\]/]{0,1000}")
PATH: Final = re.compile(r"(/[0-9A-Za-z_][-0-9A-Za-z._]*){1,64}|/")
PORT: Final = re.compile(r"[1-9][0-9]{0,4}")
_MAX_ATTRIBUTE: Final = 1 << 16
_ABSENT: Final = frozenset((errno.ENOENT, errno.ENODEV, errno.ENXIO, errno.ENOTDIR, errno.ENAMETOOLONG))
"""Errors that mean: the device has no such file, has just disappeared, or does not exist."""


class SourceType(enum.Enum):
    """Kind of an attached volume on the node."""

    DEVICE = "device"
    """A block device, which is formatted if it is blank and mounted by its file system."""
    DIRECTORY = "directory"
    """A directory of the node, which is bind-mounted."""
    REMOTE = "remote"
    """A file system of a server, which is mounted with `AttachedSource.fs_type`."""


class AttachedSource(msgspec.Struct, frozen=True, kw_only=True):
    """An attached volume. `source`: path of the device or directory, or the remote source for mount(8).

    `fs_type`, `mount_options`: for a remote source.
    """

    type: SourceType
    source: str
    fs_type: str = ""
    mount_options: tuple[str, ...] = ()


class FenceResult(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of `Backend.fence`. `fenced`: True: the holder can no longer write. `why`: one clause for users."""

    fenced: bool
    why: str


def device_source(device: str) -> AttachedSource:
    """Return the source for a block device."""
    return AttachedSource(type=SourceType.DEVICE, source=device)


class Backend(ABC):
    """One kind of storage. All methods raise KubeletxErrors: Unavailable or TimedOut if a retry may help.

    The defaults are for storage that any mode suits, and of which nothing is attached: a directory of a server.
    `name`: value of option ``backend``. `parameters`: names of the options that only this backend has. `unfenced`: why
    it cannot cut a holder off.
    """

    name: ClassVar[str]
    parameters: ClassVar[frozenset[str]] = frozenset()
    unfenced: ClassVar[str] = ""

    @abstractmethod
    def check(self, volume: StorageVolume) -> None:
        """Raise InvalidConfig if the options cannot work; called before anything is done."""

    def check_modes(self, volume: StorageVolume, modes: Sequence[AccessMode]) -> None:  # noqa: B027
        """Raise InvalidConfig if the volume must not have these access modes."""

    @abstractmethod
    async def attach(
        self, volume: StorageVolume, *, read_only: bool, secrets: Mapping[str, bytes]
    ) -> AttachedSource:
        """Attach the volume to this node, and return what it is here. If it is attached already, only return that.

        Makes a volume that does not exist if `volume.size_bytes` is not 0. A failed call leaves nothing attached.
        """

    @abstractmethod
    async def images(self, volume: StorageVolume, *, make: bool = False) -> tuple[str, ...]:
        """Return the identities of what the volume attaches. Volumes of one image have at least one in common.

        An identity that holds only under one kernel contains its boot ID. `make`: check the image, and make one that
        does not exist if `volume.size_bytes` is not 0.
        """

    async def find(self, volume: StorageVolume) -> AttachedSource | None:
        """Return what the volume is on this node; None if it is not attached. Raises if that cannot be found out."""
        return None

    async def detach(self, volume: StorageVolume, *, force: bool = False) -> None:  # noqa: B027
        """Detach the volume from this node; succeeds if it is not attached.

        When it returns, no device of the volume exists here. `force`: give up writes that are not done yet; used when
        the storage does not answer. Raises Unavailable while the volume is in use.
        """

    async def fence(self, volume: StorageVolume, holder: Holder) -> FenceResult:
        """Try to make sure that `holder` cannot write to the volume any more, now and later.

        A backend that cannot do that, or cannot know it, returns `fenced` False with the reason.
        """
        return FenceResult(fenced=False, why=self.unfenced)

    def identify(self, name: str, mount: MountPoint) -> StorageVolume | None:
        """Return the volume that the mount shows, if its journal is lost; None if it is none of this backend.

        `name`: name of the volume, from the path of the mount.
        """
        return None


def check_one_writer(volume: StorageVolume, modes: Sequence[AccessMode]) -> None:
    """Raise InvalidConfig if several nodes could mount the file system of one device for writing.

    ext3, ext4 and xfs expect to be the only writer of their device. Two kernels that mount one of them destroy it.
    """
    if AccessMode.READ_WRITE_MANY in modes and not volume.is_block:
        raise InvalidConfig(
            obj=f"volume {volume.name}",
            field="accessModes",
            problem="with ReadWriteMany several nodes write to one device, which destroys its file system",
            fix="use ReadWriteOnce, a block volume, or backend nfs",
        )


def parameter(volume: StorageVolume, name: str, pattern: re.Pattern[str], default: str | None = None) -> str:
    """Return the option `name` of the volume. Raises InvalidConfig if it does not match `pattern`.

    `default` None: the option is required.
    """
    value = volume.parameters.get(name, default)
    if value is None:
        raise bad_option(volume, name, "is missing", f"add it; backend {volume.backend} needs it")
    check_word(volume, name, value, pattern)
    return value


def check_word(volume: StorageVolume, name: str, value: str, pattern: re.Pattern[str] = WORD) -> None:
    """Raise InvalidConfig if the value of option `name` does not match `pattern`."""
    if not pattern.fullmatch(value):
        raise bad_option(volume, name, f"{value!r} is invalid", f"it must match {pattern.pattern}")


def bad_option(volume: StorageVolume, name: str, problem: str, fix: str) -> InvalidConfig:
    """Return the error of option `name` of a volume."""
    return InvalidConfig(obj=f"volume {volume.name}", field=f"option {name}", problem=problem, fix=fix)


def read_attribute(path: str | Path) -> bytes:
    """Return the content of an attribute of sysfs, or of another small file; empty if there is none.

    Raises Unavailable if that is not known: a device must not count as gone because this process has too many open
    files.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, _MAX_ATTRIBUTE)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno in _ABSENT:
            return b""
        raise Unavailable(f"cannot read {path}: {error.strerror}") from error
