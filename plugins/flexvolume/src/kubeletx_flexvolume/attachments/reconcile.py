"""`Reconciler`: compares what this node has of each volume with the node's entries in the records.

    on this node   entries of this node           action (`decide`)
    anything       none of this boot, but an      drop the volume by force, since its lock was broken; then forget
                   item of the garbage list       the item
    attached       none for its holders           drop it by force; enter it again if the records were lost as a whole
    attached       for some of its holders        none: the others protect the device
    attached       for all of its holders         none
    attaching      any                            none
    nothing        of this boot, of no holder     drop it, since its journal was lost; then remove the entries
    anything       of no holder on this node      remove the entries, such as those of an earlier boot

It runs before the agent serves, then each minute for attached volumes, every ten minutes for the garbage list, and once
after a start for all records that have an entry of this node. "By force": writes that are not done yet are given up,
since another node may have written meanwhile. Until a volume of the garbage list is dropped, this node does not take it.

The records as a whole are lost if their store has another identity than the remembered one.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec
import structlog

from kubeletx.api import Blocking, Conflict, KubeletxError, Unavailable, within
from kubeletx.linux.files import replace_file

from ..values import HolderKey, StorageVolume
from .editing import all_pages
from .events import NOT_REMOVED
from .garbage import Items, is_outdated
from .node import LocalVolume, NodeContext
from .record import Entries, find_entry, is_image_record, origins_of, without
from .record_book import RecordBook, lost_holders

log = structlog.get_logger(__name__)

DROP_SECONDS: Final = 120.0
"""Deadline of one `LocalVolumes.drop`; what is left is tried again in the next round."""
AT_ONCE: Final = 8


class Action(enum.Enum):
    """Action for one volume. The value is its reason, for users; the garbage list has reasons of its own."""

    KEEP = "entries without a volume are removed"
    DROP_LISTED = "its lock was broken"
    """Drop it by force."""
    DROP_LOST = "its entry in the attachment record is gone"
    """Drop it by force, or enter it again."""
    DROP_UNKNOWN = "this node has no journal of it"
    """Drop it; its entries still protect it."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """Decision about one volume. `strays`: entries of this node to remove, after a drop; `done`: items to forget, then."""

    action: Action
    strays: Entries = ()
    done: Items = ()

    @property
    def needs_guard(self) -> bool:
        """True if the volume must not be taken meanwhile."""
        return bool(self.strays or self.done) or self.action is not Action.KEEP


def decide(
    here: LocalVolume | None,
    entries: Entries,
    items: Items = (),
    *,
    node: str,
    boot_id: str,
    used: Collection[HolderKey],
    now: datetime,
) -> Verdict:
    """Decide about one volume of this node. Pure.

    `here`: the volume, if it has a journal. `entries`: of its record. `items`: of the garbage list about it. `used`:
    keys of all holders on this node.
    """
    own = [entry for entry in entries if entry.node == node]
    of_this_boot = {one.key for one in own if one.boot_id == boot_id}
    lost = lost_holders(here, entries) if here is not None else []
    if not of_this_boot and any(item.boot_id == boot_id for item in items):
        action = Action.DROP_LISTED
    elif here is not None and lost and len(lost) == len(here.holders):
        action = Action.DROP_LOST
    elif here is None and not of_this_boot.issubset(used):
        action = Action.DROP_UNKNOWN
    else:
        action = Action.KEEP
    return Verdict(
        action=action,
        strays=tuple(one for one in own if one.key not in used),
        # an item whose entry is in the record was not removed (yet): another node stopped between list and record
        done=tuple(item for item in items if item.key not in of_this_boot or is_outdated(item, now)),
    )


class Reconciler:
    """Reconciles the volumes of one node. What fails is logged, and tried again in the next round."""

    def __init__(
        self,
        context: NodeContext,
        book: RecordBook,
        *,
        memory: Path,
        blocking: Blocking,
        drop_seconds: float = DROP_SECONDS,
    ) -> None:
        """`memory`: file with the identity of the store; only root can write its directory, which must exist."""
        self._context = context
        self._stores = context.stores
        self._guard = context.guard
        self._book = book
        self._memory = memory
        self._blocking = blocking
        self._drop_seconds = drop_seconds
        self._remembered = ""
        self._present = ""
        """Identity of the store now; empty: not known yet."""
        self._reported: set[str] = set()

    async def check(self) -> None:
        """Reconcile every attached volume.

        When all of them have their entries in a store, that store is remembered. Raises the error if it does not answer.
        """
        if not self._present:
            self._remembered = await self._load()
            self._present = await self._stores.identity()
        results = await self._each(
            [local.volume.name for local in self._context.local().volumes() if local.device]
        )
        if self._present != self._remembered and all(results):
            await self._save(self._present)

    async def work_off(self) -> None:
        """Reconcile every volume of the garbage list. Raises Unavailable if the list cannot be read."""
        listed: dict[str, Items] = {}
        for item in await self._stores.lists.of(self._context.node):
            listed[item.volume_name] = (*listed.get(item.volume_name, ()), item)
        before = self._guard.pending
        if before is None:
            before = {
                name: frozenset()
                for name, items in listed.items()
                if any(one.boot_id == self._context.boot_id for one in items)
            }
        self._guard.pending = {name: _images(listed[name]) for name in before if name in listed}
        await self._each(listed, listed)

    async def clean_returned(self) -> None:
        """Reconcile every volume whose record has an entry of this node, and then the records of images."""
        names: set[str] = set()
        async for page in all_pages(self._stores.attachments):
            names |= {one.name for one in page if any(e.node == self._context.node for e in origins_of(one))}
        images = {name for name in names if is_image_record(name)}
        await self._each(sorted(names - images))
        for name in sorted(images):
            try:
                await self._clean_image(name)
            except KubeletxError as error:
                log.warning("Failed to remove an old entry of this node", volume=name, err=str(error))

    async def reconcile(self, name: str, items: Items = ()) -> bool:
        """Reconcile one volume; returns False if it is being taken now. `items`: of the garbage list about it."""
        verdict = await self._verdict(name, items)
        if verdict.needs_guard:
            with self._guard.clearing(name, _why(verdict, items)) as is_free:
                if not is_free:
                    return False
                verdict = await self._verdict(name, items)  # a take may have ended since
                await self._act(name, verdict, items)
        if items and self._guard.pending is not None:
            self._guard.pending.pop(name, None)
        return True

    async def _each(self, names: Iterable[str], items: Mapping[str, Items] = {}) -> list[bool]:
        turns = asyncio.Semaphore(AT_ONCE)

        async def one(name: str) -> bool:
            async with turns:
                try:
                    return await self.reconcile(name, items.get(name, ()))
                except KubeletxError as error:
                    log.warning("Failed to reconcile a volume with its record", volume=name, err=str(error))
                    return False

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(name), name=f"reconcile {name}") for name in names]
        return [task.result() for task in tasks]

    async def _verdict(self, name: str, items: Items) -> Verdict:
        entries = await self._stores.editor.items(name)
        local = self._context.local()
        here = local.find(name)
        lost = lost_holders(here, entries) if here is not None else []
        if here is not None and 0 < len(lost) < len(here.holders):
            log.warning(
                "Found a pod without an entry whose volume others use here", volume=name, holder=str(lost[0])
            )
        return decide(
            here,
            entries,
            items,
            node=self._context.node,
            boot_id=self._context.boot_id,
            used={holder.key for one in local.volumes() for holder in one.holders},
            now=self._stores.clock.now(),
        )

    async def _act(self, name: str, verdict: Verdict, items: Items) -> None:
        here = self._context.local().find(name)
        match verdict.action:
            case Action.DROP_LISTED:
                self._guard.pending = {**(self._guard.pending or {}), name: _images(items)}
                volume = here.volume if here is not None else items[0].volume(name)
                await self._drop(volume, _why(verdict, items), force=True)
            case Action.DROP_LOST if here is not None:
                self._present = (
                    await self._stores.identity()
                )  # raises if the store does not answer: nothing is dropped
                is_other = bool(self._remembered) and self._present != self._remembered
                if not (is_other and await self._entered_again(here)):
                    await self._drop(here.volume, verdict.action.value, force=True)
            case Action.DROP_UNKNOWN:
                left = next(entry for entry in verdict.strays if entry.boot_id == self._context.boot_id)
                await self._drop(left.volume(name), verdict.action.value, force=False)
        if verdict.strays:
            for record in (*sorted({image for entry in verdict.strays for image in entry.images}), name):
                await self._remove(record, verdict.strays)
            log.info("Removed old entries of this node", volume=name, entries=len(verdict.strays))
        if verdict.done:
            await self._stores.lists.remove(self._context.node, verdict.done)

    async def _drop(self, volume: StorageVolume, why: str, *, force: bool) -> None:
        """Remove the volume from this node. A forced drop that fails, such as of a device in use, is an event once."""
        name = volume.name
        try:
            async with within(self._drop_seconds, f"volume {name} was not removed from this node"):
                await self._context.local().drop(volume, why=why, force=force)
        except KubeletxError as error:
            if force and name not in self._reported:
                self._reported.add(name)
                node = self._context.node
                message = f"Node {node} cannot remove volume {name} yet, and tries again: {error} ({why})"
                await self._stores.events.of_volume(name, reason=NOT_REMOVED, message=message)
            raise
        self._reported.discard(name)
        log.warning("Removed a volume from this node", volume=name, why=why)

    async def _remove(self, record: str, strays: Entries) -> None:
        """Remove entries from a record, unless their holders are here now."""
        keys = {entry.key for entry in strays}
        is_used = self._context.is_used
        await self._stores.editor.change(
            record, lambda entries: without(entries, {key for key in keys if not is_used(key)})
        )

    async def _clean_image(self, record: str) -> None:
        """Remove entries from the record of an image that their volume's record lacks: others could not be removed."""
        editor, node = self._stores.editor, self._context.node
        own = [one for one in await editor.items(record) if one.node == node]
        old = [
            one for one in own if find_entry(await editor.items(one.volume_name or record), one.key) is None
        ]
        await self._remove(record, tuple(old))

    async def _entered_again(self, here: LocalVolume) -> bool:
        name = here.volume.name
        try:
            for holder in here.holders:
                await self._book.reenter(here.volume, holder)
        except Conflict as error:
            log.error("Found a volume of lost records in use elsewhere", volume=name, err=str(error))
            return False
        log.error("Attachment records were lost; entered a volume again", volume=name)
        return True

    async def _load(self) -> str:
        """Return the identity of the remembered store; empty if there is none."""
        try:
            return (await self._blocking(self._memory.read_bytes)).decode(errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise Unavailable(f"{self._memory} cannot be read: {error.strerror or error}") from error

    async def _save(self, identity: str) -> None:
        """Remember the store; its identity is on disk afterwards."""
        try:
            await self._blocking(replace_file, self._memory, identity.encode())
        except OSError as error:
            raise Unavailable(f"{self._memory} cannot be written: {error.strerror or error}") from error
        self._remembered = identity


def _why(verdict: Verdict, items: Items) -> str:
    listed = items[0].removed_for if items and verdict.action is Action.DROP_LISTED else ""
    return listed or verdict.action.value


def _images(items: Items) -> frozenset[str]:
    return frozenset(image for item in items for image in item.images)
