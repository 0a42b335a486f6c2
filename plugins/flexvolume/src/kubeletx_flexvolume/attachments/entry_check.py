"""`EntryCheck`: compares the volumes that are attached here with their records.

If another node has broken the lock, the entries of this node are gone from the record; the volume is then dropped at
once. If the records as a whole were lost and made again, or are other ones than before (their store has another identity
than the remembered one), each volume is entered again, unless another node has it meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kubeletx.api import Conflict, KubeletxError

from .editing import RecordEditor
from .events import LOGGED, AttachmentEvents
from .guard import VolumeGuard
from .list_worker import AT_ONCE, DROP_SECONDS, Dropper
from .local import LocalVolume, LocalVolumes
from .record_book import RecordBook, lost_holders
from .store_memory import StoreMemory

log = structlog.get_logger(__name__)

_WHY: Final = "its entry in the attachment record is gone"


class EntryCheck:
    """Drops volumes that have lost their entries."""

    def __init__(
        self,
        *,
        book: RecordBook,
        editor: RecordEditor,
        local: Callable[[], LocalVolumes],
        guard: VolumeGuard,
        identity: Callable[[], Awaitable[str]],
        memory: StoreMemory,
        events: AttachmentEvents = LOGGED,
        drop_seconds: float = DROP_SECONDS,
    ) -> None:
        """`identity`: see `stores.Stores`. `drop_seconds`: deadline for one volume."""
        self._book = book
        self._editor = editor
        self._local = local
        self._guard = guard
        self._identity = identity
        self._memory = memory
        self._dropper = Dropper(book.node, local, events, drop_seconds)
        self._store = ""
        self._present = ""

    async def check(self) -> None:
        """Check every attached volume once; what fails is logged, and checked again in the next round.

        When all volumes have their entries in a store, that store is remembered. Raises the error if it does not answer.
        """
        if not self._present:
            self._store = await self._memory.load()
            self._present = await self._identity()
        turns = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            checks = [
                group.create_task(self._volume(one.volume.name, turns), name=f"entries of {one.volume.name}")
                for one in self._local().volumes()
                if one.device
            ]
        if self._present != self._store and all(one.result() for one in checks):
            await self._memory.save(self._present)
            self._store = self._present

    async def _volume(self, name: str, turns: asyncio.Semaphore) -> bool:
        """Check one volume; returns True if no entry is missing any more."""
        async with turns:
            try:
                if await self._lost_of(name) is None:
                    await self._complete(name)
                    return True
                with self._guard.clearing(name, _WHY) as is_free:
                    lost = await self._lost_of(name) if is_free else None
                    if lost is not None:
                        await self._handle(lost)
                    return is_free
            except KubeletxError as error:
                log.warning("Failed to check the entries of a volume", volume=name, err=str(error))
                return False

    async def _lost_of(self, name: str) -> LocalVolume | None:
        """Return the volume if all its holders have lost their entries; else None."""
        entries = await self._editor.items(name)
        one = self._local().find(name)
        lost = lost_holders(one, entries) if one is not None else []
        if one is None or not lost:
            return None
        if len(lost) < len(one.holders):
            log.warning(
                "Found a pod without an entry whose volume others use here", volume=name, holder=str(lost[0])
            )
            return None
        return one

    async def _complete(self, name: str) -> None:
        """Bring entries that an agent of an earlier version has made up to date; they have no access modes."""
        one = self._local().find(name)
        if one is None:
            return
        stored = {entry.key: entry for entry in await self._editor.items(name)}
        for holder in one.holders:
            if holder.key in stored and not stored[holder.key].modes:
                try:
                    await self._book.complete(one.volume, holder)
                except Conflict as error:
                    log.error("Found two users of one image; end one of them", volume=name, err=str(error))

    async def _handle(self, one: LocalVolume) -> None:
        self._present = await self._identity()  # raises if the store does not answer: then nothing is dropped
        if self._store and self._present != self._store and await self._entered_again(one):
            return
        await self._dropper.drop(one.volume, _WHY)

    async def _entered_again(self, one: LocalVolume) -> bool:
        try:
            for holder in one.holders:
                await self._book.reenter(one.volume, holder)
        except Conflict as error:
            log.error(
                "Found a volume of lost records in use elsewhere", volume=one.volume.name, err=str(error)
            )
            return False
        log.error("Attachment records were lost; entered a volume again", volume=one.volume.name)
        return True
