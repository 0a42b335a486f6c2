"""This node, as its attachments see it: its volumes, what must not be taken now, and what all parts share."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol

import msgspec

from kubeletx.api import Unavailable

from ..backends.backend import Backend
from ..values import Holder, HolderKey, StorageVolume
from .decision import BreakPolicy
from .stores import Stores


class LocalVolume(msgspec.Struct, frozen=True, kw_only=True):
    """One volume that has a journal on this node. `holders`: an entry for each pod that uses it, in mount order."""

    volume: StorageVolume
    holders: tuple[Holder, ...]
    device: str = ""


class LocalVolumes(Protocol):
    """Volumes that are attached to this node, or are being attached or detached, from `agent.operations`."""

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


class VolumeGuard:
    """Keeps the taking of a volume and the clearing of what is left of it apart, within one agent.

    Background tasks clear volumes: they check whether the record still has an entry of this node, and if it has none,
    they drop the volume. Between the check and the drop, no pod may enter the record. The lock of the volume's worker
    cannot do that: unmounting would wait for records that do not answer. A task cannot wait for a mount either,
    since `LocalVolumes.drop` waits for the mount's step; so both sides give up instead of waiting, and are tried again.
    """

    def __init__(self) -> None:
        self.pending: dict[str, frozenset[str]] | None = None
        """Volumes that the garbage list names, with the records of their images; None: the list has not been read."""
        self.lost = asyncio.Event()
        """Set if a volume is attached here without an entry."""
        self._taking: Counter[str] = Counter()
        self._clearing: dict[str, str] = {}

    @contextmanager
    def taking(self, name: str) -> Iterator[None]:
        """Hold off the clearing of a volume. Raises Unavailable, with the reason, if it is being cleared."""
        if name in self._clearing:
            raise Unavailable(f"volume {name} is being removed from this node: {self._clearing[name]}")
        self._taking[name] += 1
        try:
            yield
        finally:
            self._taking[name] -= 1
            if not self._taking[name]:
                del self._taking[name]

    @contextmanager
    def clearing(self, name: str, why: str) -> Iterator[bool]:
        """Hold off new takes of a volume. Yields False, and holds off nothing, if it is being taken or cleared now."""
        if name in self._taking or name in self._clearing:
            yield False
            return
        self._clearing[name] = why
        try:
            yield True
        finally:
            del self._clearing[name]

    def is_pending(self, names: Collection[str]) -> bool:
        """Return True if a volume or an image with one of these record names is still to be removed from this node.

        Raises Unavailable while the garbage list has not been read.
        """
        if self.pending is None:
            raise Unavailable("the list of volumes to remove from this node has not been read yet")
        return not self.pending.keys().isdisjoint(names) or any(
            not images.isdisjoint(names) for images in self.pending.values()
        )


class NodeContext(msgspec.Struct, frozen=True, kw_only=True):
    """Values and services that the parts of one node's attachments share.

    `boot_id`: of the running kernel. `local`: returns the volumes of this node. `refuses`: returns why a volume must
    not be mounted; empty if it may. `backends`: by name; they identify images and find devices.
    """

    node: str
    boot_id: str
    stores: Stores
    local: Callable[[], LocalVolumes]
    backends: Mapping[str, Backend] = {}
    policy: BreakPolicy = BreakPolicy.SAFE
    refuses: Callable[[StorageVolume], str] = lambda _: ""
    guard: VolumeGuard = msgspec.field(default_factory=VolumeGuard)

    def is_used(self, key: HolderKey) -> bool:
        """Return True if a volume of this node has the holder."""
        return any(key == holder.key for local in self.local().volumes() for holder in local.holders)
