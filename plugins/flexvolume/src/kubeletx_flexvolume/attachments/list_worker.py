"""`ListWorker`: works off the garbage list of this node.

    the entry is of an earlier boot            ──► forget it: the restart has detached everything
    the entry is in the record                 ──► it was not removed (yet); forget it after an hour
    the node has another entry of this boot    ──► forget it: pods of this node use the volume again
    else                                       ──► drop the volume, and then forget it

Until a volume is dropped, this node does not take it. Writes that the node has not done yet are given up: another node
may have written since.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from typing import Final

import msgspec
import structlog

from kubeletx.api import Clock, KubeletxError, Unavailable

from ..values import StorageVolume
from .deadlines import within
from .editing import RecordEditor
from .events import LOGGED, NOT_REMOVED, AttachmentEvents
from .garbage import GarbageItem, GarbageLists, Items, is_outdated
from .guard import VolumeGuard
from .local import LocalVolumes
from .record import AttachmentEntry

log = structlog.get_logger(__name__)

DROP_SECONDS: Final = 120.0
"""Deadline of one `LocalVolumes.drop`; what is left is tried again in the next round."""
AT_ONCE: Final = 8


class OwnNode(msgspec.Struct, frozen=True, kw_only=True):
    """Identity of this node. `boot_id`: of the running kernel."""

    name: str
    boot_id: str


class ItemAction(enum.Enum):
    """Next action for an item of the garbage list."""

    FORGET = "forget"
    WAIT = "wait"
    DROP = "drop"


def action_for(
    item: GarbageItem, entries: Sequence[AttachmentEntry], *, boot_id: str, now: datetime
) -> ItemAction:
    """Decide about one item of this node. `entries`: of the volume's record. `boot_id`: of this node."""
    if item.boot_id != boot_id:
        return ItemAction.FORGET
    if any(one.key == item.key for one in entries):
        return ItemAction.FORGET if is_outdated(item, now) else ItemAction.WAIT
    if any((one.node, one.boot_id) == (item.node, boot_id) for one in entries):
        return ItemAction.FORGET
    return ItemAction.DROP


class Dropper:
    """Removes volumes from this node that it must not have any more, by force."""

    def __init__(
        self, node: str, local: Callable[[], LocalVolumes], events: AttachmentEvents, seconds: float
    ) -> None:
        """`seconds`: deadline for one volume."""
        self._node = node
        self._local = local
        self._events = events
        self._seconds = seconds
        self._reported: set[str] = set()

    async def drop(self, volume: StorageVolume, why: str) -> None:
        """Remove the volume. A failure, such as a device that is in use, is an event once, and raised."""
        name = volume.name
        try:
            async with within(self._seconds, f"volume {name} was not removed from this node"):
                await self._local().drop(volume, why=why, force=True)
        except KubeletxError as error:
            if name not in self._reported:
                self._reported.add(name)
                message = (
                    f"Node {self._node} cannot remove volume {name} yet, and tries again: {error} ({why})"
                )
                await self._events.of_volume(name, reason=NOT_REMOVED, message=message)
            raise
        self._reported.discard(name)
        log.warning("Removed a volume from this node", volume=name, why=why)


class ListWorker:
    """Reads and works off the garbage list of this node."""

    def __init__(
        self,
        own: OwnNode,
        *,
        lists: GarbageLists,
        editor: RecordEditor,
        local: Callable[[], LocalVolumes],
        guard: VolumeGuard,
        clock: Clock,
        events: AttachmentEvents = LOGGED,
        drop_seconds: float = DROP_SECONDS,
    ) -> None:
        """`drop_seconds`: deadline for one volume."""
        self._own = own
        self._lists = lists
        self._editor = editor
        self._local = local
        self._guard = guard
        self._clock = clock
        self._dropper = Dropper(own.name, local, events, drop_seconds)
        self._pending: dict[str, frozenset[str]] | None = None
        """Names of the volumes to drop, each with the names of its image's records; None: the list has not been read."""

    def pending(self) -> Collection[str]:
        """Return the names of the volumes to drop, and of the records of their images.

        Raises Unavailable while the list has not been read.
        """
        if self._pending is None:
            raise Unavailable(
                f"the list of volumes to remove from node {self._own.name} has not been read yet"
            )
        return self._pending.keys() | frozenset[str]().union(*self._pending.values())

    async def work_off(self) -> None:
        """Work off the list once; what fails is logged, and stays. Raises Unavailable if it cannot be read."""
        items = await self._lists.of(self._own.name)
        by_volume: dict[str, list[GarbageItem]] = {}
        for item in items:
            by_volume.setdefault(item.volume_name, []).append(item)
        of_this_boot = [one.volume_name for one in items if one.boot_id == self._own.boot_id]
        names = of_this_boot if self._pending is None else list(self._pending)
        self._pending = {name: _images(by_volume[name]) for name in names if name in by_volume}
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for name, of_volume in by_volume.items():
                work = self._volume(name, tuple(of_volume), turns)
                group.create_task(work, name=f"garbage list: {name}")

    async def _volume(self, name: str, items: Items, turns: asyncio.Semaphore) -> None:
        async with turns:
            try:
                await self._cleared(name, items)
            except KubeletxError as error:
                log.warning("Failed to work off the garbage list", volume=name, err=str(error))

    async def _cleared(self, name: str, items: Items) -> None:
        why = items[0].removed_for or "its lock was broken"
        with self._guard.clearing(name, why) as is_free:
            if not is_free:
                return
            entries = await self._editor.items(name)
            now = self._clock.now()
            actions = {
                one.item_key: action_for(one, entries, boot_id=self._own.boot_id, now=now) for one in items
            }
            if ItemAction.DROP in actions.values():
                self._pending = {**(self._pending or {}), name: _images(items)}
                await self._dropper.drop(known_volume(self._local(), items[0].storage_volume), why)
            done = [one for one in items if actions[one.item_key] is not ItemAction.WAIT]
            await self._lists.remove(self._own.name, done)
        if self._pending is not None:
            self._pending.pop(name, None)


def _images(items: Sequence[GarbageItem]) -> frozenset[str]:
    return frozenset(image for one in items for image in one.images)


def known_volume(local: LocalVolumes, described: StorageVolume) -> StorageVolume:
    """Return the volume as its journal on this node describes it, or else `described`."""
    known = local.find(described.name)
    return described if known is None else known.volume
