"""`ChecksModes`: backends whose volumes must not be written to by several nodes at the same time.

ext3, ext4 and xfs expect to be the only writer of their device. Two kernels that mount one of them destroy it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from kubeletx.api import InvalidConfig

from ..values import AccessMode, StorageVolume


@runtime_checkable
class ChecksModes(Protocol):
    """A backend that does not allow every access mode."""

    def check_modes(self, volume: StorageVolume, modes: Sequence[AccessMode]) -> None:
        """Raise InvalidConfig if the volume must not have these modes."""
        ...


def check_one_writer(volume: StorageVolume, modes: Sequence[AccessMode]) -> None:
    """Raise InvalidConfig if several nodes could mount the file system of one device for writing."""
    if AccessMode.READ_WRITE_MANY in modes and not volume.is_block:
        raise InvalidConfig(
            obj=f"volume {volume.name}",
            field="accessModes",
            problem="with ReadWriteMany several nodes write to one device, which destroys its file system",
            fix="use ReadWriteOnce, a block volume, or backend nfs",
        )
