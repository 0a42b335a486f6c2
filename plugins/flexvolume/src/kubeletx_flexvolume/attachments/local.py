"""`LocalVolumes`: the volumes on this node, as tasks other than mount and unmount use them.

The tasks are the garbage list of the node, the check of its own records, and the clean-up of a storage cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..values import Holder, StorageVolume


class LocalVolume(msgspec.Struct, frozen=True, kw_only=True):
    """One volume that has a journal on this node. `holders`: an entry for each pod that uses it, in mount order."""

    volume: StorageVolume
    holders: tuple[Holder, ...]
    device: str = ""


class LocalVolumes(Protocol):
    """Volumes that are attached to this node, or are being attached or detached."""

    def volumes(self) -> Sequence[LocalVolume]:
        """Return every volume that has a journal, ordered by name."""
        ...

    def find(self, name: str) -> LocalVolume | None:
        """Return the volume with this name; None if it has no journal."""
        ...

    async def drop(self, volume: StorageVolume, *, why: str, force: bool = False) -> None:
        """Unmount the volume from all pods of this node, detach it, and release this node's entries in its record.

        Succeeds if nothing is left of it here, also if it never had a journal. `why`: one clause for the log and
        events. `force`: the storage does not answer: unmount lazily, and give up writes that are not done. Raises
        Unavailable or TimedOut with the step that failed; the journal keeps the rest, and another call continues there.
        """
        ...
