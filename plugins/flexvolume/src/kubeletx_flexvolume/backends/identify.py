"""`Identifies`: finds out which volume a mount shows, when its journal is lost."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from ..mount_table import MountEntry
from ..values import StorageVolume


@runtime_checkable
class Identifies(Protocol):
    """A backend that recognizes its volumes in the mount table."""

    def identify(self, name: str, mount: MountEntry) -> StorageVolume | None:
        """Return the volume that the mount shows; None if it is none of this backend.

        `name`: name of the volume, from the path of the mount.
        """
        ...
