"""`AttachmentBook`: takes, updates and releases the entries of this node in attachment records."""

from __future__ import annotations

from typing import Protocol

from ..values import Holder, HolderStatus, StorageVolume


class AttachmentBook(Protocol):
    """Attachment records, as the agent's mount and unmount use them.

    All methods raise Unavailable or TimedOut if the records do not answer; after TimedOut of a write it is unknown
    whether it was done, and the call is repeated with the same holder.
    """

    async def take(self, volume: StorageVolume, holder: Holder) -> Holder:
        """Enter `holder` in the volume's record and return the entry as it is stored; succeeds if it is there already.

        Raises Conflict, which names the present holder, if the access mode does not allow both. Breaks the lock of a
        holder that has gone, following the agent's policy.
        """
        ...

    async def note(self, volume: StorageVolume, holder: Holder, *, device: str, status: HolderStatus) -> None:
        """Write device and status to the entry. Raises Conflict if the entry is gone: the lock was broken."""
        ...

    async def release(self, volume: StorageVolume, holder: Holder) -> None:
        """Remove the entry, and the record if it was the last one; succeeds if it is not there.

        Call it only when no device of the volume is left on this node for this holder.
        """
        ...

    async def holds(self, volume: StorageVolume, holder: Holder) -> bool:
        """Return True if the record has the entry."""
        ...
